#ifndef DDPRUN_WORKER_RUNTIME_DDP_LOSS_H_
#define DDPRUN_WORKER_RUNTIME_DDP_LOSS_H_

#include <ATen/core/Tensor.h>

#include "absl/status/statusor.h"
#include "worker_runtime/process_group/process_group.h"

namespace ddprun {

// Each rank computes the loss of its own samples; DDP averages gradients, not losses. So what ranks print differs, and
// only the average is what a single process with the whole batch would print (if all ranks have equally many samples).

// The loss (one floating number) of this rank's samples. Waits for a GPU; talks to nobody.
double LossOfThisRank(const at::Tensor& loss);

// The mean of all ranks' losses, the same number on all of them. Collective: every rank calls it. Costs a round trip, so
// not in every step. Errors: those of ProcessGroup's operations.
absl::StatusOr<double> LossAveragedOverRanks(const at::Tensor& loss, ProcessGroup& group);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_DDP_LOSS_H_
