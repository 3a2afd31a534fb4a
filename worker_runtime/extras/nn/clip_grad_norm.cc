#include "worker_runtime/extras/nn/clip_grad_norm.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <map>
#include <string>
#include <unordered_set>

namespace ddprun {

at::Tensor ClipGradNorm(const std::vector<at::Tensor>& parameters, double max_norm, double norm_type) {
  const at::NoGradGuard no_grad;
  std::unordered_set<const void*> seen;
  std::map<std::string, std::vector<at::Tensor>> gradients;  // by device
  at::Device first(at::kCPU);
  for (const at::Tensor& parameter : parameters) {
    const at::Tensor& gradient = parameter.grad();
    if (!gradient.defined() || !seen.insert(parameter.unsafeGetTensorImpl()).second) continue;
    if (gradients.empty()) first = gradient.device();
    gradients[gradient.device().str()].push_back(gradient);
  }
  if (gradients.empty()) return at::zeros({});
  std::vector<at::Tensor> norms;
  for (const auto& [device, tensors] : gradients) {
    for (const at::Tensor& norm : at::_foreach_norm(tensors, norm_type)) norms.push_back(norm.to(first));
  }
  const at::Tensor total = at::linalg_vector_norm(at::stack(norms), norm_type);
  // Clamped on the device, because the host would have to wait for it.
  const at::Tensor factor = ((total + 1e-6).reciprocal() * max_norm).clamp_max(1.0);
  for (const auto& [device, tensors] : gradients) at::_foreach_mul_(tensors, factor.to(tensors.front().device()));
  return total;
}

}  // namespace ddprun
