#include "worker_runtime/base/parameters.h"

#include <ATen/core/grad_mode.h>

#include <unordered_set>

namespace ddprun {

std::vector<at::Tensor> Parameters(const torch::nn::Module& module) {
  std::vector<at::Tensor> parameters;
  // Compared by identity, as in Python: two parameters may share memory and still be distinct.
  std::unordered_set<const void*> seen;
  for (const at::Tensor& parameter : module.parameters()) {
    if (seen.insert(parameter.unsafeGetTensorImpl()).second) parameters.push_back(parameter);
  }
  return parameters;
}

void ZeroGradients(const std::vector<at::Tensor>& parameters, bool set_to_none) {
  at::NoGradGuard no_grad;
  for (const at::Tensor& parameter : parameters) {
    at::Tensor& gradient = parameter.mutable_grad();
    if (!gradient.defined()) continue;
    if (set_to_none) {
      gradient.reset();
      continue;
    }
    // Detaches a gradient that has a graph of its own, not in place, as a view can't be detached in place.
    if (gradient.grad_fn() != nullptr) gradient = gradient.detach();
    gradient.requires_grad_(false);
    gradient.zero_();
  }
}

}  // namespace ddprun
