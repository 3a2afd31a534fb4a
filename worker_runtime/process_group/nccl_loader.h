#ifndef DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_NCCL_LOADER_H_
#define DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_NCCL_LOADER_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker_runtime/process_group/nccl_plugin/nccl_plugin.h"

namespace ddprun {

// Path of the plugin. If not set, libddprun_nccl.so is searched next to the program, in ../lib, and in the dynamic
// linker's search path.
inline constexpr char kNcclLibraryVariable[] = "DDPRUN_NCCL_LIBRARY";

// This process's plugin. Loaded at the first call, never unloaded. Thread-safe.
// Errors: FailedPrecondition: this host has no usable GPU (then nothing is loaded); the library was not found (with the
// paths searched); the dynamic linker rejected it; it is from another build.
absl::StatusOr<NcclPlugin*> LoadNcclPlugin();

// Once the plugin is loaded and a GPU is there. LibTorch looks for CUDA's library once, when something first asks for a
// GPU, torch::manual_seed included; if the plugin is loaded only later, CUDA stays off for this process.
// Errors: FailedPrecondition: too late; says what to do.
absl::Status CheckCudaWasLoadedInTime();

// Whether a CUDA program could find a GPU on this host, according to the driver's device file and CUDA_VISIBLE_DEVICES.
// Loads nothing.
bool HostHasGpu();

// HostHasGpu with a given device file and value of CUDA_VISIBLE_DEVICES (nullptr: not set).
bool HasGpu(const std::string& device_file, const char* visible_devices);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_NCCL_LOADER_H_
