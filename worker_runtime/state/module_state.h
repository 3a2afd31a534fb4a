#ifndef DDPRUN_WORKER_RUNTIME_STATE_MODULE_STATE_H_
#define DDPRUN_WORKER_RUNTIME_STATE_MODULE_STATE_H_

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "worker_runtime/safetensors/tensor_bytes.h"
#include "worker_runtime/state/state_match.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace ddprun {

// Parameters and buffers of a module under the names of Python's state_dict ("blocks.0.attn.weight"). Handles to the
// module's own tensors, not copies.
struct ModuleState {
  // Tied tensors once, under the alphabetically first name.
  NamedTensors tensors;
  // Every other name of a tied tensor -> the name above.
  std::map<std::string, std::string> aliases;

  // All names and the shape of each of `tensors`, in their order.
  std::vector<StateTarget> Targets() const;
};

// Throws only exceptions of LibTorch.
ModuleState GetModuleState(const torch::nn::Module& module);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_STATE_MODULE_STATE_H_
