#ifndef DDPRUN_EXAMPLES_CPP_TOY_MODEL_H_
#define DDPRUN_EXAMPLES_CPP_TOY_MODEL_H_

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include "worker_runtime/nn/linear.h"

namespace examples {

// Two linear layers, possibly on two devices: [batch, 10] on `first` -> [batch, 5] on `second`.
class ToyModelImpl : public torch::nn::Module {
 public:
  explicit ToyModelImpl(at::Device first = at::kCPU, at::Device second = at::kCPU)
      : first_(first),
        second_(second),
        net1_(register_module("net1", ddprun::Linear(10, 10))),
        net2_(register_module("net2", ddprun::Linear(10, 5))) {
    net1_->to(first_);
    net2_->to(second_);
  }

  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor hidden = at::relu(net1_->forward(x.to(first_)));
    return net2_->forward(hidden.to(second_));
  }

 private:
  const at::Device first_;
  const at::Device second_;
  ddprun::Linear net1_;
  ddprun::Linear net2_;
};
TORCH_MODULE(ToyModel);

}  // namespace examples

#endif  // DDPRUN_EXAMPLES_CPP_TOY_MODEL_H_
