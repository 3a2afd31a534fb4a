#ifndef DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_NCCL_PLUGIN_NCCL_POLICY_H_
#define DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_NCCL_PLUGIN_NCCL_POLICY_H_

#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>

#include "worker_contract/environment.h"

namespace ddprun {

// What TORCH_NCCL_ASYNC_ERROR_HANDLING must be set to, given its value (nullptr: not set), so that errors of NCCL are
// reported instead of ending the process; nullptr: nothing, as the user chose otherwise.
inline const char* NcclErrorHandlingToSet(const char* value) {
  const bool chosen =
      value != nullptr && *value != '\0' && strcmp(value, worker_contract::kNcclErrorsEndTheWorker) != 0;
  return chosen ? nullptr : worker_contract::kNcclErrorsAreReported;
}

// Errors of NCCL are to reach the caller, who aborts the group and may make another in the same process: LibTorch's
// watchdog aborts the communicator and leaves the process alone (see worker_contract/environment.h), ProcessGroup finds
// the error. What the user has set stays. `timeout`: of a group. To be called before the process has other threads,
// which may read the environment meanwhile; a second call changes nothing.
inline void SetNcclDefaults(std::chrono::milliseconds timeout) {
  const char* const policy = NcclErrorHandlingToSet(getenv(worker_contract::kNcclAsyncErrorHandling));
  if (policy != nullptr) setenv(worker_contract::kNcclAsyncErrorHandling, policy, /*overwrite=*/1);
  setenv("TORCH_NCCL_ENABLE_MONITORING", "0", 0);    // a second watchdog, which ends the process regardless
  setenv("TORCH_NCCL_RETHROW_CUDA_ERRORS", "0", 0);  // in the watchdog's thread, where nobody can catch them
  setenv("TORCH_NCCL_DUMP_ON_TIMEOUT", "0", 0);
  // Before it aborts a communicator, the watchdog sleeps four times this long (by default a minute) for dumps.
  setenv("TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC", "1", 0);
  // For the creation of a communicator, whose ranks may never come. LibTorch has one such limit for the process.
  const std::chrono::seconds limit =
      std::min<std::chrono::seconds>(std::chrono::ceil<std::chrono::seconds>(timeout), std::chrono::hours(24 * 365));
  setenv("TORCH_NCCL_NONBLOCKING_TIMEOUT", std::to_string(limit.count()).c_str(), 0);
}

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_NCCL_PLUGIN_NCCL_POLICY_H_
