#ifndef DDPRUN_WORKER_RUNTIME_STATE_OPTIMIZER_KIND_H_
#define DDPRUN_WORKER_RUNTIME_STATE_OPTIMIZER_KIND_H_

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace ddprun {

// Accessors for the state and options of one kind of optimizer through its base classes. Stateless; thread-safe.
struct OptimizerKind {
  struct Field {
    std::string name;  // as in Python's state_dict
    // Undefined if the parameter has no such value.
    std::function<at::Tensor(const torch::optim::OptimizerParamState&)> get;
    std::function<void(torch::optim::OptimizerParamState&, const at::Tensor&)> set;
    bool scalar = false;  // otherwise it has the parameter's shape
  };

  std::string name;  // "AdamW"
  std::vector<Field> fields;
  std::function<std::unique_ptr<torch::optim::OptimizerParamState>()> make_state;
  std::function<bool(const torch::optim::OptimizerOptions&)> is_for;
  // {"lr": 0.001, "betas": [0.9, 0.999], ...}, names as in Python's param_groups.
  std::function<nlohmann::json(const torch::optim::OptimizerOptions&)> options_to_json;
  // False if the JSON lacks an entry or has another type. `apply` nullptr: checks only.
  std::function<bool(const nlohmann::json&, torch::optim::OptimizerOptions* apply)> options_from_json;

  const Field* Find(const std::string& field) const;

  // The kind to which these options belong; nullptr: unsupported.
  static const OptimizerKind* For(const torch::optim::OptimizerOptions& options);
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_STATE_OPTIMIZER_KIND_H_
