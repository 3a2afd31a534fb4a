#ifndef DDPRUN_WORKER_RUNTIME_BASE_NON_RESTARTABLE_H_
#define DDPRUN_WORKER_RUNTIME_BASE_NON_RESTARTABLE_H_

#include "absl/status/status.h"

namespace ddprun {

// Marks an error that would recur after a restart, such as a bad configuration: RunWorker then ends the worker with
// exit code 78, and the launcher does not restart the job and exits with the same code. OK stays OK.
//
//   return ddprun::NonRestartable(absl::InvalidArgumentError("--layers must be positive"));
absl::Status NonRestartable(absl::Status status);

bool IsNonRestartable(const absl::Status& status);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_BASE_NON_RESTARTABLE_H_
