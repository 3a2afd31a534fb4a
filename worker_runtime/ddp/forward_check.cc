#include "worker_runtime/ddp/forward_check.h"

#include <c10/util/Exception.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>

#include <memory>
#include <string>

namespace ddprun {

ForwardCheck::ForwardCheck(const TrainedParameters& trained, std::function<bool()> expected) {
  using torch::autograd::variable_list;
  for (size_t i = 0; i < trained.tensors.size(); ++i) {
    const auto check = [expected, name = trained.names[i]](const variable_list& outputs, const variable_list&) {
      TORCH_CHECK_VALUE(expected(), "the gradient of parameter \"", name,
                        "\" would not be averaged over the ranks: no forward of DistributedDataParallel precedes this "
                        "backward pass; call its forward instead of the module's, once for each backward, or use "
                        "no_sync() for gradients that stay on this rank");
      return outputs;
    };
    Node node = torch::autograd::impl::grad_accumulator(trained.tensors[i]);
    const uintptr_t key = node->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(check));
    hooks_.emplace_back(std::move(node), key);
  }
}

ForwardCheck::~ForwardCheck() {
  for (auto& [node, key] : hooks_) node->del_post_hook(key);
}

}  // namespace ddprun
