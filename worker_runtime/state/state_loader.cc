#include "worker_runtime/state/state_loader.h"

#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <ATen/core/Generator.h>
#include <ATen/core/grad_mode.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace ddprun {

StateLoader::StateLoader(TrainingState& state, Source model, Source rest, int rank)
    : state_(&state),
      model_(std::move(model)),
      rest_(std::move(rest)),
      rank_(rank),
      module_(GetModuleState(state.module_)) {}

absl::StatusOr<StateLoader> StateLoader::Create(TrainingState& state, Source model, Source rest, int rank) {
  StateLoader loader(state, std::move(model), std::move(rest), rank);
  DDPRUN_RETURN_IF_ERROR(loader.Plan());
  return loader;
}

absl::Status StateLoader::Plan() {
  if (model_.header != nullptr) {
    DDPRUN_ASSIGN_OR_RETURN(match_, MatchState(model_.path, module_.Targets(), *model_.header));
  }
  // A model from another source has no other parts; all other state then keeps its initial values.
  if (rest_.header == nullptr) return absl::OkStatus();
  if (state_->optimizer_ != nullptr) {
    const auto groups = rest_.header->metadata.find(kOptimizerGroupsKey);
    if (groups == rest_.header->metadata.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat(model_.path, " was saved without an optimizer; load it with LoadModule"));
    }
    DDPRUN_ASSIGN_OR_RETURN(optimizer_, OptimizerStateLoader::Create(rest_.path, module_, *state_->optimizer_,
                                                                     *rest_.header, groups->second));
  }
  for (const auto& [name, tensor] : state_->tensors_) {
    const SafetensorsTensor* const stored = rest_.header->Find(absl::StrCat(kUserTensorPrefix, name));
    if (stored == nullptr) {
      missing_.push_back(name);
    } else if (stored->shape != tensor.sizes().vec()) {
      return absl::InvalidArgumentError(absl::StrCat(rest_.path, " does not match: tensor \"", name, "\" has shape ",
                                                     ShapeText(stored->shape), " in the file and ",
                                                     ShapeText(tensor.sizes().vec()), " here"));
    }
  }
  for (const auto& [name, text] : state_->texts_) {
    if (!rest_.header->metadata.contains(absl::StrCat(kStateTextPrefix, name))) missing_.push_back(name);
  }
  return absl::OkStatus();
}

void StateLoader::SetModelTensor(size_t index, const at::Tensor& value) {
  const at::NoGradGuard no_grad;
  for (const size_t target : match_[index]) at::Tensor(module_.tensors[target].second).copy_(value);
}

void StateLoader::SetRestTensor(size_t index, const at::Tensor& value) {
  const at::NoGradGuard no_grad;
  const std::string& name = rest_.header->tensors[index].name;
  if (optimizer_ && optimizer_->Take(name, value)) return;
  if (absl::StartsWith(name, kUserTensorPrefix)) {
    const auto target = state_->tensors_.find(name.substr(sizeof(kUserTensorPrefix) - 1));
    if (target != state_->tensors_.end()) target->second.copy_(value);
    return;
  }
  const bool ours = value.dim() == 2 && value.scalar_type() == at::kByte && rank_ < value.size(0);
  if (ours && name == kCpuRandomName) cpu_random_ = value.select(0, rank_).clone();
  if (ours && name == kAcceleratorRandomName) accelerator_random_ = value.select(0, rank_).clone();
}

absl::Status StateLoader::Install() {
  const at::NoGradGuard no_grad;
  if (optimizer_) optimizer_->Install();
  if (cpu_random_.defined()) {
    const at::Tensor all = accelerator_random_.defined() ? at::cat({cpu_random_, accelerator_random_}) : cpu_random_;
    SetRandomState(all, AcceleratorsOf(module_.tensors));
  }
  if (rest_.header == nullptr) return absl::OkStatus();
  for (const auto& [name, text] : state_->texts_) {
    const auto stored = rest_.header->metadata.find(absl::StrCat(kStateTextPrefix, name));
    if (stored == rest_.header->metadata.end()) continue;
    if (absl::Status status = text.load(stored->second); !status.ok()) {
      return absl::Status(status.code(), absl::StrCat(rest_.path, ": \"", name, "\": ", status.message()));
    }
  }
  return absl::OkStatus();
}

namespace {

at::Tensor StateOf(c10::Device device) {
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

// Sets a generator's state from the bytes at `offset`; returns the offset of the next state.
int64_t SetStateOf(c10::Device device, const at::Tensor& state, int64_t offset) {
  const int64_t bytes = StateOf(device).numel();
  if (offset + bytes > state.numel()) return offset;
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_state(state.slice(0, offset, offset + bytes).clone());
  return offset + bytes;
}

}  // namespace

at::Tensor GetRandomState(absl::Span<const c10::Device> devices) {
  std::vector<at::Tensor> states = {StateOf(c10::DeviceType::CPU)};
  for (const c10::Device device : devices) states.push_back(StateOf(device));
  return at::cat(states);
}

int64_t CpuRandomStateBytes() { return StateOf(c10::DeviceType::CPU).numel(); }

void SetRandomState(const at::Tensor& state, absl::Span<const c10::Device> devices) {
  int64_t offset = SetStateOf(c10::DeviceType::CPU, state, 0);
  for (const c10::Device device : devices) offset = SetStateOf(device, state, offset);
}

std::vector<c10::Device> AcceleratorsOf(const NamedTensors& tensors) {
  std::vector<c10::Device> devices;
  for (const auto& [name, tensor] : tensors) {
    const c10::Device device = tensor.device();
    const bool seen = std::find(devices.begin(), devices.end(), device) != devices.end();
    if (!device.is_cpu() && !device.is_meta() && !seen) devices.push_back(device);
  }
  std::sort(devices.begin(), devices.end(), [](c10::Device a, c10::Device b) { return a.index() < b.index(); });
  return devices;
}

}  // namespace ddprun
