#ifndef DDPRUN_EXAMPLES_CPP_TOY_MODEL_H_
#define DDPRUN_EXAMPLES_CPP_TOY_MODEL_H_

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include "worker_runtime/extras/nn.h"

namespace examples {

// Two linear layers, possibly on two devices: [batch, 10] -> [batch, 5] on the device of the second layer. The input
// may be on any device.
class ToyModelImpl : public torch::nn::Module {
 public:
  explicit ToyModelImpl(at::Device first = at::kCPU, at::Device second = at::kCPU)
      : net1_(register_module("net1", ddprun::Linear(10, 10))), net2_(register_module("net2", ddprun::Linear(10, 5))) {
    net1_->to(first);
    net2_->to(second);
  }

  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor hidden = at::relu(net1_->forward(x.to(net1_->weight.device())));
    return net2_->forward(hidden.to(net2_->weight.device()));
  }

 private:
  ddprun::Linear net1_;
  ddprun::Linear net2_;
};
TORCH_MODULE(ToyModel);

}  // namespace examples

#endif  // DDPRUN_EXAMPLES_CPP_TOY_MODEL_H_
