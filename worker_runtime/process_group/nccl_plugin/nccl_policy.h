#ifndef DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_NCCL_PLUGIN_NCCL_POLICY_H_
#define DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_NCCL_PLUGIN_NCCL_POLICY_H_

#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>

#include "worker_contract/environment.h"

namespace ddprun {

// Returns the value to set TORCH_NCCL_ASYNC_ERROR_HANDLING to, given its current value (nullptr: not set), so that NCCL
// errors are reported instead of ending the process; nullptr: leave it, as the user chose another policy.
inline const char* NcclErrorHandlingToSet(const char* value) {
  const bool chosen =
      value != nullptr && *value != '\0' && strcmp(value, worker_contract::kNcclErrorsEndTheWorker) != 0;
  return chosen ? nullptr : worker_contract::kNcclErrorsAreReported;
}

// Upper bound of the limit below in an elastic worker: less than the launcher's --shutdown-timeout, after which a
// worker that does not leave its round is killed and its state is lost.
inline constexpr std::chrono::seconds kElasticNcclLimit(20);

// Sets NCCL variables so that errors reach the caller, who aborts the group and may create another in the same process:
// LibTorch's watchdog aborts the communicator without ending the process (see worker_contract/environment.h), and
// ProcessGroup finds the error. Variables that are already set are kept, except for the launcher's default of
// TORCH_NCCL_ASYNC_ERROR_HANDLING. No other thread may read the environment meanwhile; a second call changes nothing.
inline void SetNcclDefaults() {
  const char* const policy = NcclErrorHandlingToSet(getenv(worker_contract::kNcclAsyncErrorHandling));
  if (policy != nullptr) setenv(worker_contract::kNcclAsyncErrorHandling, policy, /*overwrite=*/1);
  setenv("TORCH_NCCL_ENABLE_MONITORING", "0", 0);    // a second watchdog, which would end the process anyway
  setenv("TORCH_NCCL_RETHROW_CUDA_ERRORS", "0", 0);  // on the watchdog's thread, where they can't be caught
  setenv("TORCH_NCCL_DUMP_ON_TIMEOUT", "0", 0);
  // The watchdog sleeps four times this long (by default a minute) for dumps before it aborts a communicator.
  setenv("TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC", "1", 0);
}

// Limits the creation of a communicator, which begins when all its ranks have met (NcclStore), and the launch of a
// collective. LibTorch has one such limit per process, and reads it once: call before the first group. `timeout` is
// that of the group, `elastic` whether the worker is to outlive others. Otherwise like SetNcclDefaults.
inline void SetNcclLimit(std::chrono::milliseconds timeout, bool elastic) {
  const std::chrono::seconds limit = std::min<std::chrono::seconds>(
      std::chrono::ceil<std::chrono::seconds>(timeout), elastic ? kElasticNcclLimit : std::chrono::hours(24 * 365));
  setenv("TORCH_NCCL_NONBLOCKING_TIMEOUT", std::to_string(limit.count()).c_str(), 0);
}

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_NCCL_PLUGIN_NCCL_POLICY_H_
