#include "worker_runtime/extras/nn/parameters.h"

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

}  // namespace ddprun
