#ifndef DDPRUN_WORKER_RUNTIME_EXTRAS_NN_PARAMETERS_H_
#define DDPRUN_WORKER_RUNTIME_EXTRAS_NN_PARAMETERS_H_

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

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_EXTRAS_NN_PARAMETERS_H_
