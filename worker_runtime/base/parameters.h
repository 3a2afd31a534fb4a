#ifndef DDPRUN_WORKER_RUNTIME_BASE_PARAMETERS_H_
#define DDPRUN_WORKER_RUNTIME_BASE_PARAMETERS_H_

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <memory>
#include <vector>

namespace ddprun {

// Returns the parameters of a module, each once, like Python's list(module.parameters()): in the order of
// named_parameters(), with and without requires_grad. Tied weights are one parameter; LibTorch's module.parameters()
// lists it once for each of its names, so that an optimizer steps it twice and clip_grad_norm_ counts it twice. Use
// this function for both:
//
//   ddprun::AdamW optimizer(ddprun::Parameters(model));
//   ddprun::ClipGradNorm(ddprun::Parameters(model), 1.0);
std::vector<at::Tensor> Parameters(const torch::nn::Module& module);

template <class M>
std::vector<at::Tensor> Parameters(const std::shared_ptr<M>& module) {
  return Parameters(static_cast<const torch::nn::Module&>(*module));
}
template <class M>
std::vector<at::Tensor> Parameters(const torch::nn::ModuleHolder<M>& module) {
  return Parameters(module.ptr());
}

// Like Python's Optimizer.zero_grad(set_to_none): removes the gradients, or fills them with zeros in place. Unlike
// torch::optim::Optimizer::zero_grad, supports gradients that are views into DDP's buckets. Optimizers skip a parameter
// without a gradient; with a zero gradient they still apply weight decay and momentum.
void ZeroGradients(const std::vector<at::Tensor>& parameters, bool set_to_none = true);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_BASE_PARAMETERS_H_
