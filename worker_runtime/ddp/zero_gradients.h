#ifndef DDPRUN_WORKER_RUNTIME_DDP_ZERO_GRADIENTS_H_
#define DDPRUN_WORKER_RUNTIME_DDP_ZERO_GRADIENTS_H_

#include <ATen/core/Tensor.h>

#include <vector>

namespace ddprun {

// Like Python's Optimizer.zero_grad(set_to_none): removes the gradients, or fills them with zeros in place. Unlike
// torch::optim::Optimizer::zero_grad, supports gradients that are views into DDP's buckets. Optimizers skip a parameter
// without a gradient; with a zero gradient they still apply weight decay and momentum.
void ZeroGradients(const std::vector<at::Tensor>& parameters, bool set_to_none = true);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_DDP_ZERO_GRADIENTS_H_
