#ifndef DDPRUN_TESTS_WORKER_RUNTIME_DDP_SMALL_MODELS_H_
#define DDPRUN_TESTS_WORKER_RUNTIME_DDP_SMALL_MODELS_H_

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

namespace ddprun::testing {

// One weight of `width` numbers, all 1 at first; the gradient of forward's sum is the input itself.
struct Scale : torch::nn::Module {
  explicit Scale(int64_t width = 4) { weight = register_parameter("weight", at::full({width}, 1.0)); }
  at::Tensor forward(const at::Tensor& x) { return x * weight; }

  at::Tensor weight;
};

// A layer that is used and one that is not, unless `use_both`.
struct Forked : torch::nn::Module {
  Forked() {
    used = register_module("used", torch::nn::Linear(3, 2));
    spare = register_module("spare", torch::nn::Linear(3, 2));
  }
  at::Tensor forward(const at::Tensor& x, bool use_both = false) {
    at::Tensor y = used(x);
    if (use_both) y = y + spare(x);
    return y;
  }

  torch::nn::Linear used{nullptr}, spare{nullptr};
};

// Ranks that are threads share LibTorch's generator of random numbers, so what must be the same twice is not drawn.
inline void Fill(torch::nn::Module& module) {
  torch::NoGradGuard no_grad;
  for (at::Tensor& parameter : module.parameters()) {
    parameter.copy_((at::arange(parameter.numel()) * 37 % 101).to(at::kFloat).view(parameter.sizes()) / 303 - 0.16);
  }
}

// The inputs of one rank in one step: [4, 7].
inline at::Tensor Inputs(int step, int rank) {
  return ((at::arange(28) + 5 * step + 11 * rank) * 29 % 97).to(at::kFloat).view({4, 7}) / 97;
}

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_WORKER_RUNTIME_DDP_SMALL_MODELS_H_
