#ifndef DDPRUN_WORKER_RUNTIME_EXTRAS_PROFILER_PROFILE_STEPS_H_
#define DDPRUN_WORKER_RUNTIME_EXTRAS_PROFILER_PROFILE_STEPS_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker_runtime/process_group/process_group.h"

namespace ddprun {

// Phases of a profiling cycle in steps, as in torch.profiler.schedule.
struct ProfileOptions {
  std::string folder;      // for the traces; created if it does not exist
  int64_t wait = 1;        // steps that are not profiled
  int64_t warmup = 1;      // steps in which the profiler runs and its results are dropped
  int64_t active = 3;      // steps in the trace; at least 1
  int64_t repeat = 1;      // number of cycles; 0: until the training ends
  int64_t first_step = 0;  // steps done before, if the training was resumed; only used in file names
};

// Profiles some steps of a training with LibTorch's profiler (Kineto), as torch.profiler.profile does: operators, the
// collectives of DistributedDataParallel, and a GPU's kernels. Each rank writes a trace per cycle,
// `<folder>/<host>_<rank>.<step>.pt.trace.json`, where `step` is the last one in it. TensorBoard's profiler plugin, HTA
// (Holistic Trace Analysis), https://ui.perfetto.dev and chrome://tracing show it.
//
//   DDPRUN_ASSIGN_OR_RETURN(auto profiler, ddprun::ProfileSteps::Create(*worker.group(), {.folder = "runs/7"}));
//   for (...) {
//     ...
//     DDPRUN_RETURN_IF_ERROR(profiler->Step());
//   }
//
// One per process at a time, used by the thread that trains. Does not communicate.
class ProfileSteps {
 public:
  // Begins the first step.
  // Errors: InvalidArgument if a number of steps is negative or `active` is 0; errors of the file system, with the
  // path.
  static absl::StatusOr<std::unique_ptr<ProfileSteps>> Create(const ProcessGroup& group, ProfileOptions options);

  // Writes the events recorded so far, if the training ends within a cycle.
  ~ProfileSteps();
  ProfileSteps(const ProfileSteps&) = delete;
  ProfileSteps& operator=(const ProfileSteps&) = delete;

  // Call at the end of each step. Writing a trace takes up to a few seconds.
  // Errors: Internal for errors of the profiler, for example if another one is running; errors of the file system, with
  // the path.
  absl::Status Step();

 private:
  class Impl;
  explicit ProfileSteps(std::unique_ptr<Impl> impl);

  const std::unique_ptr<Impl> impl_;
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_EXTRAS_PROFILER_PROFILE_STEPS_H_
