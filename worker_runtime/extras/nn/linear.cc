#include "worker_runtime/extras/nn/linear.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/linear.h>

namespace ddprun {

at::Tensor LinearImpl::forward(const at::Tensor& input) { return at::linear(input, weight, bias); }

// The inherited function would create a torch::nn::LinearImpl.
std::shared_ptr<torch::nn::Module> LinearImpl::clone(const std::optional<torch::Device>& device) const {
  at::NoGradGuard no_grad;
  auto copy = std::make_shared<LinearImpl>(options);
  copy->to(weight.device(), weight.scalar_type());
  if (device.has_value()) copy->to(*device);
  for (const auto& parameter : named_parameters()) {
    at::Tensor target = *copy->named_parameters().find(parameter.key());
    target.copy_(parameter.value());
    target.set_requires_grad(parameter.value().requires_grad());
  }
  copy->train(is_training());
  return copy;
}

}  // namespace ddprun
