#include "worker_runtime/checkpoint/checkpoint_content.h"

#include <ATen/Functions.h>

#include <map>
#include <string>
#include <utility>

#include "worker_runtime/checkpoint/module_state.h"
#include "worker_runtime/checkpoint/optimizer_state.h"
#include "worker_runtime/checkpoint/random_state.h"
#include "worker_runtime/checkpoint/tensor_bytes.h"

namespace ddprun {
namespace {

absl::StatusOr<FileContent> LayOut(const NamedTensors& tensors, std::map<std::string, std::string> metadata) {
  absl::StatusOr<std::vector<SafetensorsTensor>> described = DescribeTensors(tensors);
  if (!described.ok()) return described.status();
  absl::StatusOr<SafetensorsHeader> layout = LayOutSafetensors(*std::move(described), std::move(metadata));
  if (!layout.ok()) return layout.status();
  std::map<absl::string_view, at::Tensor> by_name;
  for (const auto& [name, tensor] : tensors) by_name[name] = tensor;
  FileContent content;
  for (const SafetensorsTensor& tensor : layout->tensors) content.tensors.push_back(by_name[tensor.name]);
  content.layout = *std::move(layout);
  return content;
}

}  // namespace

absl::StatusOr<CheckpointContent> CollectContent(const torch::nn::Module& module, torch::optim::Optimizer* optimizer,
                                                 const std::vector<at::Tensor>& random, const CheckpointInfo& info) {
  const ModuleState module_state = GetModuleState(module);
  std::map<std::string, std::string> metadata = InfoToMetadata(info);
  NamedTensors state;
  std::map<std::string, std::string> state_metadata = metadata;
  if (optimizer != nullptr) {
    absl::StatusOr<OptimizerState> optimizer_state = GetOptimizerState(module_state, *optimizer);
    if (!optimizer_state.ok()) return optimizer_state.status();
    state = std::move(optimizer_state->tensors);
    state_metadata[kOptimizerGroupsKey] = std::move(optimizer_state->groups);
  }
  const at::Tensor rows = at::stack(random);
  const int64_t cpu_bytes = CpuRandomStateBytes();
  state.emplace_back(kCpuRandomName, rows.slice(1, 0, cpu_bytes));
  if (rows.size(1) > cpu_bytes) state.emplace_back(kAcceleratorRandomName, rows.slice(1, cpu_bytes));

  metadata.insert(module_state.aliases.begin(), module_state.aliases.end());
  absl::StatusOr<FileContent> model_file = LayOut(module_state.tensors, std::move(metadata));
  if (!model_file.ok()) return model_file.status();
  absl::StatusOr<FileContent> state_file = LayOut(state, std::move(state_metadata));
  if (!state_file.ok()) return state_file.status();
  return CheckpointContent{*std::move(model_file), *std::move(state_file)};
}

}  // namespace ddprun
