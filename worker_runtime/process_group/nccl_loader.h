#ifndef DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_NCCL_LOADER_H_
#define DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_NCCL_LOADER_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker_runtime/process_group/nccl_plugin/nccl_plugin.h"

namespace ddprun {

// Names the file; else libddprun_nccl.so is looked for beside the program, in ../lib, and where the dynamic linker
// looks.
inline constexpr char kNcclLibraryVariable[] = "DDPRUN_NCCL_LIBRARY";

// The plugin of this process, loaded at the first call; it stays loaded. Thread-safe.
// Errors: FailedPrecondition in one line: this host has no usable GPU (then nothing is loaded); no library was found,
// and where it was looked for; the dynamic linker refused it; it belongs to another build.
absl::StatusOr<NcclPlugin*> LoadNcclPlugin();

// Whether a CUDA program could find a GPU here, by the driver's device file and CUDA_VISIBLE_DEVICES; nothing is
// loaded.
bool HostHasGpu();

// The same for a given device file and value (nullptr: not set).
bool HasGpu(const std::string& device_file, const char* visible_devices);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_NCCL_LOADER_H_
