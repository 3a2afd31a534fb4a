#ifndef DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_CHOOSE_DEVICE_H_
#define DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_CHOOSE_DEVICE_H_

#include <c10/core/Device.h>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker_runtime/env/worker_env.h"

namespace ddprun {

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

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_CHOOSE_DEVICE_H_
