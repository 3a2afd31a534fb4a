#include "tests/worker_runtime/checkpoint/sample_net.h"

#include <ATen/Functions.h>
#include <torch/nn/functional/linear.h>
#include <torch/nn/functional/loss.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "worker_runtime/safetensors/tensor_bytes.h"
#include "worker_runtime/state/module_state.h"

namespace ddprun::testing {

SampleNet::SampleNet() {
  namespace nn = torch::nn;
  wte_ = register_module("wte", nn::Embedding(13, 8));
  blocks_ = register_module("blocks", nn::Sequential(nn::Linear(8, 8), nn::BatchNorm1d(8), nn::Dropout(0.1)));
  head_ = register_parameter("head", wte_->weight);
}

at::Tensor SampleNet::forward(const at::Tensor& ids) { return at::linear(blocks_->forward(wte_->forward(ids)), head_); }

std::vector<at::Tensor> UniqueParameters(const torch::nn::Module& module) {
  std::vector<at::Tensor> unique;
  for (const at::Tensor& parameter : module.parameters()) {
    const bool seen =
        std::any_of(unique.begin(), unique.end(), [&](const at::Tensor& t) { return t.is_same(parameter); });
    if (!seen) unique.push_back(parameter);
  }
  return unique;
}

void TrainStep(SampleNet& net, torch::optim::Optimizer& optimizer, int64_t step) {
  net.train();
  const at::Tensor ids = (at::arange(6, at::kLong) * (step + 3)).remainder(13);
  const at::Tensor loss = torch::nn::functional::cross_entropy(net.forward(ids), (ids + 1).remainder(13));
  net.zero_grad();
  loss.backward();
  optimizer.step();
}

std::string Bits(const torch::nn::Module& module) {
  std::string bits;
  for (const auto& [name, tensor] : GetModuleState(module).tensors) {
    absl::StrAppend(&bits, name, "=", HostBytes(ToHost(tensor)), ";");
  }
  return bits;
}

}  // namespace ddprun::testing
