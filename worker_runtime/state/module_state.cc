#include "worker_runtime/state/module_state.h"

#include <torch/nn/module.h>

#include <utility>

namespace ddprun {
namespace {

// True if the tensors have the same values in the same memory, so that one copy is sufficient.
bool Tied(const at::Tensor& a, const at::Tensor& b) {
  if (a.is_same(b)) return true;
  return a.numel() > 0 && a.data_ptr() == b.data_ptr() && a.device() == b.device() && a.dtype() == b.dtype() &&
         a.sizes() == b.sizes() && a.strides() == b.strides();
}

}  // namespace

ModuleState GetModuleState(const torch::nn::Module& module) {
  // Ordered by name, which does not depend on the order of registration.
  std::map<std::string, at::Tensor> all;
  for (const auto& item : module.named_parameters()) {
    if (item.value().defined()) all.emplace(item.key(), item.value());
  }
  for (const auto& item : module.named_buffers()) {
    if (item.value().defined()) all.emplace(item.key(), item.value());
  }
  ModuleState state;
  std::multimap<const void*, size_t> by_address;
  for (const auto& [name, tensor] : all) {
    const void* const address = tensor.numel() > 0 ? tensor.const_data_ptr() : tensor.unsafeGetTensorImpl();
    const std::string* first = nullptr;
    for (auto [same, end] = by_address.equal_range(address); same != end && first == nullptr; ++same) {
      if (Tied(state.tensors[same->second].second, tensor)) first = &state.tensors[same->second].first;
    }
    if (first != nullptr) {
      state.aliases.emplace(name, *first);
    } else {
      by_address.emplace(address, state.tensors.size());
      state.tensors.emplace_back(name, tensor);
    }
  }
  return state;
}

std::vector<StateTarget> ModuleState::Targets() const {
  std::map<std::string, std::vector<std::string>> others;
  for (const auto& [alias, name] : aliases) others[name].push_back(alias);
  std::vector<StateTarget> targets;
  for (const auto& [name, tensor] : tensors) {
    StateTarget target{{name}, tensor.sizes().vec()};
    for (std::string& alias : others[name]) target.names.push_back(std::move(alias));
    targets.push_back(std::move(target));
  }
  return targets;
}

}  // namespace ddprun
