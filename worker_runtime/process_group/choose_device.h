#ifndef DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_CHOOSE_DEVICE_H_
#define DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_CHOOSE_DEVICE_H_

#include <c10/core/Device.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker_runtime/env/worker_env.h"
#include "worker_runtime/process_group/nccl_plugin/nccl_plugin.h"

namespace ddprun {

// ---- for trainers ----

// Returns the device on which this worker computes, for ProcessGroupOptions::device and the trainer's own tensors:
//   "auto"   the GPU of its local rank if this host has usable GPUs, else the CPU; if the host has a GPU that is not
//            usable, a line on stderr gives the reason
//   "cpu"    the CPU; no CUDA library is loaded
//   "cuda"   the GPU of its local rank
//   "cuda:1" GPU 1
// Makes a CUDA device the current device of the calling thread. Thread-safe.
//
// Errors: InvalidArgument for any other text, or if the GPU's index is too high (also with "auto", as fewer GPUs than
// workers is a launch mistake); the message has the number of GPUs that this process sees. FailedPrecondition if "cuda"
// is not available at all.
absl::StatusOr<c10::Device> ChooseDevice(const WorkerEnv& env, absl::string_view wish = "auto");

// ---- for the runtime: the NCCL plugin, which ChooseDevice and process groups load when they first need a GPU ----

// Path of the plugin. If not set, libddprun_nccl.so is searched for next to the program, in ../lib, and in the dynamic
// linker's search path.
inline constexpr char kNcclLibraryVariable[] = "DDPRUN_NCCL_LIBRARY";

// Returns this process's plugin. The first call loads it; it is never unloaded. Thread-safe.
// Errors: FailedPrecondition: this host has no usable GPU (then nothing is loaded); the library was not found (with the
// paths searched); the dynamic linker rejected it; it is from another build.
absl::StatusOr<NcclPlugin*> LoadNcclPlugin();

// Checks that LibTorch has found CUDA; call it once the plugin is loaded and the host has a GPU. LibTorch looks for
// CUDA's library only once, when a GPU is first requested (torch::manual_seed does so, too); if the plugin is loaded
// later, CUDA stays off in this process.
// Errors: FailedPrecondition, with a hint, if the plugin was loaded too late.
absl::Status CheckCudaWasLoadedInTime();

// True if a CUDA program could find a GPU on this host, according to the driver's device file and CUDA_VISIBLE_DEVICES.
// Loads nothing.
bool HostHasGpu();

// HostHasGpu for a given device file and value of CUDA_VISIBLE_DEVICES (nullptr: not set).
bool HasGpu(const std::string& device_file, const char* visible_devices);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_CHOOSE_DEVICE_H_
