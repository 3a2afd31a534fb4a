#ifndef DDPRUN_WORKER_RUNTIME_OPTIM_ZERO_GRADIENTS_H_
#define DDPRUN_WORKER_RUNTIME_OPTIM_ZERO_GRADIENTS_H_

#include <ATen/core/Tensor.h>

#include <vector>

namespace ddprun {

// What Python's Optimizer.zero_grad(set_to_none) does: takes the gradients away, or fills them with zeros where they
// are. Unlike torch::optim::Optimizer::zero_grad this also works where gradients are views into DDP's buckets. A parameter
// whose gradient is taken away is left alone by optimizers; one whose gradient is zero still gets weight decay and the
// rest of its momentum.
void ZeroGradients(const std::vector<at::Tensor>& parameters, bool set_to_none = true);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_OPTIM_ZERO_GRADIENTS_H_
