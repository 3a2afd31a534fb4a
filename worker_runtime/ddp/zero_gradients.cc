#include "worker_runtime/ddp/zero_gradients.h"

#include <ATen/core/grad_mode.h>

namespace ddprun {

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
