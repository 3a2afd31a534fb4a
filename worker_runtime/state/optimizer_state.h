#ifndef DDPRUN_WORKER_RUNTIME_STATE_OPTIMIZER_STATE_H_
#define DDPRUN_WORKER_RUNTIME_STATE_OPTIMIZER_STATE_H_

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker_runtime/safetensors/safetensors_header.h"
#include "worker_runtime/safetensors/tensor_bytes.h"
#include "worker_runtime/state/module_state.h"

namespace torch::optim {
class Optimizer;
}  // namespace torch::optim

// The state of an optimizer under the names of the module's parameters, so that Python and other processes can read it
// (LibTorch's archives use addresses as keys):
//
//   optimizer.state.PARAMETER.exp_avg      moments: shape and dtype of the parameter
//   optimizer.state.PARAMETER.step         float32 scalar, as in Python
//   optimizer.state.PARAMETER.momentum_buffer
//
// and a JSON text with the kind of optimizer and, per group, the names of its parameters and its options. This format
// is used for SGD, Adam and AdamW of the C++ frontend and classes derived from them, such as ddprun::AdamW. All others
// are stored in the form that their save() writes into LibTorch's archive (parameters by position):
//
//   optimizer.archive                      uint8 [bytes]
//
// Functions that access tensors throw c10::Error like LibTorch: call them inside TorchTry.
namespace ddprun {

inline constexpr char kOptimizerStatePrefix[] = "optimizer.state.";

struct OptimizerState {
  NamedTensors tensors;  // handles to the optimizer's own, not copies; `step` is a new tensor
  std::string groups;    // JSON
};

// Errors: Unimplemented: an optimizer of another kind whose class does not implement save(); InvalidArgument: a
// parameter that the module does not have.
absl::StatusOr<OptimizerState> GetOptimizerState(const ModuleState& module, torch::optim::Optimizer& optimizer);

// Collects the state from a checkpoint tensor by tensor, and installs it in an optimizer at the end.
class OptimizerStateLoader {
 public:
  // Performs all checks that are possible before the first tensor is read. The arguments must outlive the object.
  // Errors name `file`: InvalidArgument: another kind of optimizer, other groups, an unknown parameter, or a tensor
  // whose shape differs from its parameter's; DataLoss: `groups` is damaged; otherwise those of GetOptimizerState.
  static absl::StatusOr<OptimizerStateLoader> Create(absl::string_view file, const ModuleState& module,
                                                     torch::optim::Optimizer& optimizer,
                                                     const SafetensorsHeader& header, const std::string& groups);

  // Copies `value` to the device of its parameter if it belongs to the optimizer; otherwise returns false.
  bool Take(const std::string& name, const at::Tensor& value);

  // Replaces all state and options of the optimizer. Parameters without saved state have none afterwards.
  void Install();

 private:
  struct Slot {
    at::Tensor parameter;
    std::string field;
    at::Tensor value;
  };

  explicit OptimizerStateLoader(torch::optim::Optimizer& optimizer) : optimizer_(&optimizer) {}

  torch::optim::Optimizer* optimizer_;
  std::map<std::string, Slot> slots_;  // keyed by the tensor's name; empty for an archive
  at::Tensor archive_;                 // undefined: stored by name, or not received yet
  std::string groups_;
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_STATE_OPTIMIZER_STATE_H_
