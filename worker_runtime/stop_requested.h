#ifndef DDPRUN_WORKER_RUNTIME_STOP_REQUESTED_H_
#define DDPRUN_WORKER_RUNTIME_STOP_REQUESTED_H_

#include <optional>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker_runtime/process_group/process_group.h"

namespace ddprun {

// Returns the time at which the worker is killed if the job is being stopped (SIGTERM from the launcher, because of a
// signal, SLURM's preemption or time limit), else nullopt. The answer is the same on all ranks in the same step,
// although the signal reaches them at different times. Collective; costs a round trip, so call it every few steps.
//
//   DDPRUN_ASSIGN_OR_RETURN(const auto stop, ddprun::StopRequested(*worker.group()));
//   if (stop.has_value()) return checkpoints.Save(progress);   // before *stop
//
// The first call makes the process wait for SIGTERM instead of ending by it, unless a handler is set: call it once
// before the first step, and regularly from then on. The deadline is the one that the launcher sends over the worker
// link; for a signal from another sender it is DDPRUN_STOP_GRACE after the signal, 30 s if not set. The earliest
// deadline of all ranks counts. Errors: those of ProcessGroup's operations.
absl::StatusOr<std::optional<absl::Time>> StopRequested(ProcessGroup& group);

// Time until this process is killed, as far as this rank knows; infinite if no stop was announced. Not collective:
// other ranks may not know yet, so agree before acting on it.
absl::Duration TimeUntilStop();

// Ignores the warning signals (SIGUSR1, SIGUSR2) unless a handler is set: they announce the end of the job's time, and
// must not end the worker. RunWorker calls it.
void IgnoreWarningSignals();

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_STOP_REQUESTED_H_
