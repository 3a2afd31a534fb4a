#include "worker_runtime/ddp/module_tensors.h"

#include <c10/core/ScalarType.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/embedding.h>

#include <unordered_set>

#include "worker_runtime/extras/nn/parameters.h"

namespace ddprun {
namespace {

// Compares tensors by identity, as Python does: two parameters may share memory and still be distinct.
class SeenOnce {
 public:
  bool operator()(const at::Tensor& tensor) { return seen_.insert(tensor.unsafeGetTensorImpl()).second; }

 private:
  std::unordered_set<const void*> seen_;
};

std::unordered_set<const void*> SparseWeights(const torch::nn::Module& module) {
  std::unordered_set<const void*> weights;
  for (const auto& child : module.modules()) {
    if (const auto* embedding = child->as<torch::nn::EmbeddingImpl>()) {
      if (embedding->options.sparse()) weights.insert(embedding->weight.unsafeGetTensorImpl());
    }
    if (const auto* bag = child->as<torch::nn::EmbeddingBagImpl>()) {
      if (bag->options.sparse()) weights.insert(bag->weight.unsafeGetTensorImpl());
    }
  }
  return weights;
}

ModelDescription::Entry Describe(const std::string& name, const at::Tensor& tensor) {
  return {.name = name, .shape = tensor.sizes().vec(), .dtype = c10::toString(tensor.scalar_type())};
}

}  // namespace

TrainedParameters CollectTrainedParameters(const torch::nn::Module& module) {
  TrainedParameters trained;
  const std::unordered_set<const void*> sparse = SparseWeights(module);
  SeenOnce first_time;
  for (const auto& parameter : module.named_parameters()) {
    const at::Tensor& tensor = parameter.value();
    if (!tensor.requires_grad() || !first_time(tensor)) continue;
    trained.tensors.push_back(tensor);
    trained.names.push_back(parameter.key());
    trained.sparse.push_back(sparse.contains(tensor.unsafeGetTensorImpl()));
  }
  return trained;
}

std::vector<at::Tensor> CollectBuffers(const torch::nn::Module& module) {
  std::vector<at::Tensor> buffers;
  SeenOnce first_time;
  for (const at::Tensor& buffer : module.buffers()) {
    if (first_time(buffer)) buffers.push_back(buffer);
  }
  return buffers;
}

std::vector<at::Tensor> CollectState(const torch::nn::Module& module, bool with_buffers) {
  std::vector<at::Tensor> state;
  for (const at::Tensor& parameter : Parameters(module)) state.push_back(parameter.detach());
  if (with_buffers) {
    for (const at::Tensor& buffer : CollectBuffers(module)) state.push_back(buffer.detach());
  }
  return state;
}

ModelDescription DescribeModule(const torch::nn::Module& module, const DdpOptions& options) {
  ModelDescription description;
  description.options = DescribeOptions(options);
  for (const auto& parameter : module.named_parameters()) {
    ModelDescription::Entry& entry = description.entries.emplace_back(Describe(parameter.key(), parameter.value()));
    entry.trained = parameter.value().requires_grad();
  }
  if (!options.broadcast_buffers) return description;
  for (const auto& buffer : module.named_buffers()) {
    description.entries.emplace_back(Describe(buffer.key(), buffer.value())).buffer = true;
  }
  return description;
}

}  // namespace ddprun
