#include "worker_runtime/process_group/nccl_plugin/nccl_plugin.h"

#include <c10/cuda/CUDAFunctions.h>
#include <c10/util/Exception.h>
#include <stdlib.h>

#include <mutex>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

namespace ddprun {
namespace {

// By default NCCL's watchdog ends the process when a collective fails. Here the error is to reach the caller, who
// aborts the group and may make another in the same process. What the user has set stays.
void SetRecoveryDefaults() {
  static std::once_flag once;
  std::call_once(once, [] {
    setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "2", 0);  // abort the communicator, leave the process alone
    setenv("TORCH_NCCL_ENABLE_MONITORING", "0", 0);     // a second watchdog, which ends the process regardless
    setenv("TORCH_NCCL_RETHROW_CUDA_ERRORS", "0", 0);   // in the watchdog's thread, where nobody can catch them
    setenv("TORCH_NCCL_DUMP_ON_TIMEOUT", "0", 0);
  });
}

class Plugin : public NcclPlugin {
 public:
  int DeviceCount() override { return c10::cuda::device_count_ensure_non_zero(); }

  void UseDevice(c10::Device device) override { c10::cuda::set_device(device.index()); }

  c10::intrusive_ptr<c10d::Backend> Create(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                           c10::Device device, std::chrono::milliseconds timeout) override {
    const int devices = DeviceCount();
    TORCH_CHECK_VALUE(device.is_cuda() && device.index() >= 0 && device.index() < devices, "no device ", device,
                      ": this process sees ", devices, " GPU(s)");
    SetRecoveryDefaults();
    UseDevice(device);
    auto options = c10d::ProcessGroupNCCL::Options::create();
    options->timeout = timeout;
#ifdef NCCL_HAS_COMM_NONBLOCKING
    // A bound device would make communicators non-blocking, whose errors surface later and elsewhere.
    options->config.blocking = 1;
#endif
    return c10::make_intrusive<c10d::ProcessGroupNCCL>(store, rank, size, options);
  }
};

}  // namespace
}  // namespace ddprun

extern "C" __attribute__((visibility("default"))) const ddprun::NcclPluginEntry* ddprun_nccl_plugin() {
  static ddprun::Plugin plugin;
  static const ddprun::NcclPluginEntry entry = {DDPRUN_NCCL_PLUGIN_BUILD, &plugin};
  return &entry;
}
