#ifndef DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_NCCL_PLUGIN_NCCL_POLICY_H_
#define DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_NCCL_PLUGIN_NCCL_POLICY_H_

#include <cstring>

#include "worker_contract/environment.h"

namespace ddprun {

// What TORCH_NCCL_ASYNC_ERROR_HANDLING must be set to, given its value (nullptr: not set), so that errors of NCCL are
// reported instead of ending the process; nullptr: nothing, as the user chose otherwise.
inline const char* NcclErrorHandlingToSet(const char* value) {
  const bool chosen =
      value != nullptr && *value != '\0' && strcmp(value, worker_contract::kNcclErrorsEndTheWorker) != 0;
  return chosen ? nullptr : worker_contract::kNcclErrorsAreReported;
}

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_NCCL_PLUGIN_NCCL_POLICY_H_
