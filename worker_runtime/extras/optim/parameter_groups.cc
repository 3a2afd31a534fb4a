#include "worker_runtime/extras/optim/parameter_groups.h"

#include <c10/util/Exception.h>

#include <unordered_map>

namespace ddprun {

void CheckEachOnce(const char* optimizer, const std::vector<torch::optim::OptimizerParamGroup>& groups) {
  std::unordered_map<const void*, size_t> seen;
  size_t index = 0;
  for (const torch::optim::OptimizerParamGroup& group : groups) {
    for (const at::Tensor& parameter : group.params()) {
      const auto [first, is_new] = seen.emplace(parameter.unsafeGetTensorImpl(), index);
      TORCH_CHECK_VALUE(is_new, optimizer, ": parameters ", first->second, " and ", index,
                        " are the same tensor, of shape ", parameter.sizes(),
                        ", and would be stepped twice; pass each parameter once (tied weights: ",
                        "ddprun::Parameters(module) instead of module->parameters())");
      ++index;
    }
  }
}

}  // namespace ddprun
