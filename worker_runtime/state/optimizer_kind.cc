#include "worker_runtime/state/optimizer_kind.h"

#include <ATen/Functions.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <tuple>

namespace ddprun {
namespace {

using nlohmann::json;
using torch::optim::OptimizerOptions;
using torch::optim::OptimizerParamState;

// Field for a moment: a member function of State that returns a reference, and one that sets it.
template <typename State>
OptimizerKind::Field TensorField(const char* name, const at::Tensor& (State::*get)() const,
                                 at::Tensor& (State::*get_mutable)()) {
  OptimizerKind::Field field;
  field.name = name;
  field.get = [get](const OptimizerParamState& state) { return (static_cast<const State&>(state).*get)(); };
  field.set = [get_mutable](OptimizerParamState& state, const at::Tensor& value) {
    (static_cast<State&>(state).*get_mutable)() = value;
  };
  return field;
}

// Python stores the number of steps as a float32 tensor, which is exact up to 2^24; beyond that, the bias correction
// computed from it is 1.
template <typename State>
OptimizerKind::Field StepField() {
  OptimizerKind::Field field;
  field.name = "step";
  field.scalar = true;
  field.get = [](const OptimizerParamState& state) {
    return at::scalar_tensor(static_cast<const State&>(state).step(), at::kFloat);
  };
  field.set = [](OptimizerParamState& state, const at::Tensor& value) {
    static_cast<State&>(state).step(static_cast<int64_t>(value.item<double>()));
  };
  return field;
}

bool IsNumber(const json& object, const char* key) { return object.contains(key) && object[key].is_number(); }
bool IsTruth(const json& object, const char* key) { return object.contains(key) && object[key].is_boolean(); }

template <typename Options, typename State>
OptimizerKind AdamKind(const char* name) {
  OptimizerKind kind;
  kind.name = name;
  kind.fields = {StepField<State>(), TensorField<State>("exp_avg", &State::exp_avg, &State::exp_avg),
                 TensorField<State>("exp_avg_sq", &State::exp_avg_sq, &State::exp_avg_sq),
                 TensorField<State>("max_exp_avg_sq", &State::max_exp_avg_sq, &State::max_exp_avg_sq)};
  kind.make_state = [] { return std::make_unique<State>(); };
  kind.is_for = [](const OptimizerOptions& options) { return dynamic_cast<const Options*>(&options) != nullptr; };
  kind.options_to_json = [](const OptimizerOptions& any) {
    const auto& options = static_cast<const Options&>(any);
    return json{{"lr", options.lr()},
                {"betas", {std::get<0>(options.betas()), std::get<1>(options.betas())}},
                {"eps", options.eps()},
                {"weight_decay", options.weight_decay()},
                {"amsgrad", options.amsgrad()}};
  };
  kind.options_from_json = [](const json& from, OptimizerOptions* any) {
    if (!IsNumber(from, "lr") || !IsNumber(from, "eps") || !IsNumber(from, "weight_decay")) return false;
    if (!IsTruth(from, "amsgrad") || !from.contains("betas")) return false;
    const json& betas = from["betas"];
    if (!betas.is_array() || betas.size() != 2 || !betas[0].is_number() || !betas[1].is_number()) return false;
    if (any == nullptr) return true;
    auto& options = static_cast<Options&>(*any);
    options.lr(from["lr"].get<double>());
    options.betas(std::make_tuple(betas[0].get<double>(), betas[1].get<double>()));
    options.eps(from["eps"].get<double>());
    options.weight_decay(from["weight_decay"].get<double>());
    options.amsgrad(from["amsgrad"].get<bool>());
    return true;
  };
  return kind;
}

OptimizerKind SgdKind() {
  using Options = torch::optim::SGDOptions;
  using State = torch::optim::SGDParamState;
  OptimizerKind kind;
  kind.name = "SGD";
  kind.fields = {TensorField<State>("momentum_buffer", &State::momentum_buffer, &State::momentum_buffer)};
  kind.make_state = [] { return std::make_unique<State>(); };
  kind.is_for = [](const OptimizerOptions& options) { return dynamic_cast<const Options*>(&options) != nullptr; };
  kind.options_to_json = [](const OptimizerOptions& any) {
    const auto& options = static_cast<const Options&>(any);
    return json{{"lr", options.lr()},
                {"momentum", options.momentum()},
                {"dampening", options.dampening()},
                {"weight_decay", options.weight_decay()},
                {"nesterov", options.nesterov()}};
  };
  kind.options_from_json = [](const json& from, OptimizerOptions* any) {
    for (const char* key : {"lr", "momentum", "dampening", "weight_decay"}) {
      if (!IsNumber(from, key)) return false;
    }
    if (!IsTruth(from, "nesterov")) return false;
    if (any == nullptr) return true;
    auto& options = static_cast<Options&>(*any);
    options.lr(from["lr"].get<double>());
    options.momentum(from["momentum"].get<double>());
    options.dampening(from["dampening"].get<double>());
    options.weight_decay(from["weight_decay"].get<double>());
    options.nesterov(from["nesterov"].get<bool>());
    return true;
  };
  return kind;
}

}  // namespace

const OptimizerKind::Field* OptimizerKind::Find(const std::string& field) const {
  for (const Field& known : fields) {
    if (known.name == field) return &known;
  }
  return nullptr;
}

const OptimizerKind* OptimizerKind::For(const OptimizerOptions& options) {
  static const std::vector<OptimizerKind>* const kinds = new std::vector<OptimizerKind>{
      SgdKind(), AdamKind<torch::optim::AdamOptions, torch::optim::AdamParamState>("Adam"),
      AdamKind<torch::optim::AdamWOptions, torch::optim::AdamWParamState>("AdamW")};
  for (const OptimizerKind& kind : *kinds) {
    if (kind.is_for(options)) return &kind;
  }
  return nullptr;
}

}  // namespace ddprun
