#ifndef DDPRUN_WORKER_RUNTIME_STATE_STATE_LOADER_H_
#define DDPRUN_WORKER_RUNTIME_STATE_STATE_LOADER_H_

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker_runtime/safetensors/safetensors_header.h"
#include "worker_runtime/state/module_state.h"
#include "worker_runtime/state/optimizer_state.h"
#include "worker_runtime/state/training_state.h"

namespace ddprun {

// Names in the rest of the state and its metadata.
inline constexpr char kOptimizerGroupsKey[] = "ddprun.optimizer";
inline constexpr char kStateTextPrefix[] = "ddprun.state.";
inline constexpr char kUserTensorPrefix[] = "user.";
inline constexpr char kCpuRandomName[] = "random.cpu";                  // uint8 [ranks, bytes]
inline constexpr char kAcceleratorRandomName[] = "random.accelerator";  // uint8 [ranks, bytes]

// Restores a TrainingState from its parts, wherever they come from: a file, another rank, or memory. Functions that get
// tensors throw c10::Error like LibTorch.
class StateLoader {
 public:
  struct Source {
    std::string path;                           // for errors
    const SafetensorsHeader* header = nullptr;  // nullptr: there is no such part
  };

  // Checks everything that can be checked before the first value is set. What is passed must outlive the object.
  // `rank` chooses the random numbers. `model.header` nullptr: there are only other parts.
  // Errors name the path: InvalidArgument: module, optimizer or an added tensor differ from the saved ones; DataLoss:
  // an entry is damaged.
  static absl::StatusOr<StateLoader> Create(TrainingState& state, Source model, Source rest, int rank);

  // The value of the tensor with this index in its header, in host memory or on any device.
  void TakeModel(size_t index, const at::Tensor& value);
  void TakeRest(size_t index, const at::Tensor& value);

  // To be called when all tensors have been taken. Errors: those of the functions of AddText.
  absl::Status Install();

  // Added names that the source does not have: they keep their values.
  const std::vector<std::string>& missing() const { return missing_; }

 private:
  StateLoader(TrainingState& state, Source model, Source rest, int rank);
  absl::Status Plan();

  TrainingState* state_;
  Source model_;
  Source rest_;
  int rank_;
  ModuleState module_;
  std::vector<std::vector<size_t>> match_;
  std::optional<OptimizerStateLoader> optimizer_;
  std::vector<std::string> missing_;
  at::Tensor cpu_random_;
  at::Tensor accelerator_random_;
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_STATE_STATE_LOADER_H_
