#ifndef DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_CHOOSE_DEVICE_H_
#define DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_CHOOSE_DEVICE_H_

#include <c10/core/Device.h>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker_runtime/env/worker_env.h"

namespace ddprun {

// The device on which this worker computes, for ProcessGroupOptions::device and the trainer's own tensors:
//   "auto"   the GPU of its local rank if this host has one that can be used, else the CPU; where there is one that
//            can't be, a line on stderr says why
//   "cpu"    the CPU; nothing of CUDA is loaded
//   "cuda"   the GPU of its local rank
//   "cuda:1" that one
// A CUDA device is made the current one of the calling thread. Thread-safe.
//
// Errors: InvalidArgument for another word, or if the GPU's number is too high, with how many GPUs this process sees
// (also under "auto", where some GPUs but too few are a mistake of the launch); FailedPrecondition if "cuda" can't be
// had at all.
absl::StatusOr<c10::Device> ChooseDevice(const WorkerEnv& env, absl::string_view wish = "auto");

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_CHOOSE_DEVICE_H_
