#ifndef DDPRUN_WORKER_RUNTIME_DDP_LOSS_H_
#define DDPRUN_WORKER_RUNTIME_DDP_LOSS_H_

#include <ATen/core/Tensor.h>

#include "absl/status/statusor.h"
#include "worker_runtime/process_group/process_group.h"

namespace ddprun {

// Each rank computes the loss of its own samples, and DDP averages gradients, not losses, so the ranks' losses differ.
// Their average equals the loss of a single process with the whole batch, if all ranks have the same number of samples.

// Returns the loss of this rank's samples. `loss`: one floating-point element. Waits for a GPU, does not communicate.
double LossOfThisRank(const at::Tensor& loss);

// Returns the mean of all ranks' losses, the same value on all ranks. Collective. Costs a round trip, so do not call it
// in every step. Errors: those of ProcessGroup's operations.
absl::StatusOr<double> LossAveragedOverRanks(const at::Tensor& loss, ProcessGroup& group);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_DDP_LOSS_H_
