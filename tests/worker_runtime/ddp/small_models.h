#ifndef DDPRUN_TESTS_WORKER_RUNTIME_DDP_SMALL_MODELS_H_
#define DDPRUN_TESTS_WORKER_RUNTIME_DDP_SMALL_MODELS_H_

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

namespace ddprun::testing {

// One weight of `width` ones; the gradient of forward's sum is the input.
struct Scale : torch::nn::Module {
  explicit Scale(int64_t width = 4) { weight = register_parameter("weight", at::full({width}, 1.0)); }
  at::Tensor forward(const at::Tensor& x) { return x * weight; }

  at::Tensor weight;
};

// Two layers, of which forward uses the second one only with `use_both`.
struct Forked : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x, bool use_both = false) { return use_both ? used(x) + spare(x) : used(x); }

  torch::nn::Linear used = register_module("used", torch::nn::Linear(3, 2));
  torch::nn::Linear spare = register_module("spare", torch::nn::Linear(3, 2));
};

// Sets all parameters to fixed values. Ranks that are threads share LibTorch's random number generator, so values that
// must be reproducible are not drawn.
inline void Fill(torch::nn::Module& module) {
  torch::NoGradGuard no_grad;
  for (at::Tensor& parameter : module.parameters()) {
    parameter.copy_((at::arange(parameter.numel()) * 37 % 101).to(at::kFloat).view(parameter.sizes()) / 303 - 0.16);
  }
}

// Inputs of one rank in one step: [4, 7].
inline at::Tensor Inputs(int step, int rank) {
  return ((at::arange(28) + 5 * step + 11 * rank) * 29 % 97).to(at::kFloat).view({4, 7}) / 97;
}

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_WORKER_RUNTIME_DDP_SMALL_MODELS_H_
