#ifndef DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_NCCL_PLUGIN_NCCL_PLUGIN_H_
#define DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_NCCL_PLUGIN_NCCL_PLUGIN_H_

#include <c10/core/Device.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/version.h>

#include <chrono>
#include <string>

#include "worker_runtime/process_group/backend_choice.h"

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace ddprun {

// Interface of libddprun_nccl.so, which is linked with the CUDA and NCCL libraries and loaded when a program first
// requests a GPU, so that other programs never load them. Errors are LibTorch's exceptions. Thread-safe.
class NcclPlugin {
 public:
  virtual ~NcclPlugin() = default;

  // Returns the number of GPUs that this process may use. Throws with the driver's reason if there are none.
  virtual int DeviceCount() = 0;

  // Makes `device` this thread's current device.
  virtual void UseDevice(c10::Device device) = 0;

  // Identifies the GPU among those of all hosts: the 16 bytes of its UUID.
  virtual std::string DeviceUuid(c10::Device device) = 0;

  // Creates a rank's endpoint of a group on `device`. Its abort() and shutdown() are those of c10d::Backend; after
  // abort(), collectives throw c10::DistBackendError. Throws c10::ValueError if this LibTorch does not have `engine`.
  virtual c10::intrusive_ptr<c10d::Backend> Create(NcclEngine engine, const c10::intrusive_ptr<c10d::Store>& store,
                                                   int rank, int size, c10::Device device,
                                                   std::chrono::milliseconds timeout) = 0;
};

// Must be equal on both sides. Raise the number when this file changes.
#define DDPRUN_NCCL_PLUGIN_BUILD "interface 3, LibTorch " TORCH_VERSION

struct NcclPluginEntry {
  const char* build;  // the plugin's DDPRUN_NCCL_PLUGIN_BUILD; must be read before `plugin`
  NcclPlugin* plugin;
};

// The plugin's only exported function; the entry has static storage.
#define DDPRUN_NCCL_PLUGIN_ENTRY "ddprun_nccl_plugin"
using NcclPluginFunction = const NcclPluginEntry* (*)();

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_NCCL_PLUGIN_NCCL_PLUGIN_H_
