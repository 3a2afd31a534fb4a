#ifndef DDPRUN_TESTS_GPU_HALVES_H_
#define DDPRUN_TESTS_GPU_HALVES_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <torch/nn/module.h>

#include "worker_runtime/extras/nn.h"

namespace ddprun::testing {

// A model whose halves may be on two devices: [batch, 16] -> [batch, 8].
struct Halves : torch::nn::Module {
  Halves(c10::Device first_device, c10::Device second_device) : first_on(first_device), second_on(second_device) {
    first = register_module("first", Linear(16, 32));
    second = register_module("second", Linear(32, 8));
    first->to(first_on);
    second->to(second_on);
  }
  at::Tensor forward(const at::Tensor& x) { return second(first(x.to(first_on)).relu().to(second_on)); }

  const c10::Device first_on, second_on;
  Linear first{nullptr}, second{nullptr};
};

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_GPU_HALVES_H_
