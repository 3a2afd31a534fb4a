#ifndef DDPRUN_WORKER_RUNTIME_DDP_MODEL_AGREEMENT_H_
#define DDPRUN_WORKER_RUNTIME_DDP_MODEL_AGREEMENT_H_

#include "absl/status/status.h"
#include "worker_runtime/ddp/model_description.h"
#include "worker_runtime/process_group/process_group.h"

namespace ddprun {

// Collective. Returns OK if all ranks have rank 0's model and options.
// Errors, the same message on all ranks: InvalidArgument has the first difference, with the shapes (dtypes, names) of
// rank 0 and of the lowest rank that differs. Otherwise those of ProcessGroup's operations.
absl::Status CheckAllRanksAgree(const ModelDescription& description, ProcessGroup& group);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_DDP_MODEL_AGREEMENT_H_
