#ifndef DDPRUN_WORKER_RUNTIME_STATE_STATE_LOADER_H_
#define DDPRUN_WORKER_RUNTIME_STATE_STATE_LOADER_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker_runtime/safetensors/safetensors_header.h"
#include "worker_runtime/safetensors/tensor_bytes.h"
#include "worker_runtime/state/module_state.h"
#include "worker_runtime/state/optimizer_state.h"
#include "worker_runtime/state/training_state.h"

namespace ddprun {

// Names in the `rest` part of the state and in its metadata.
inline constexpr char kOptimizerGroupsKey[] = "ddprun.optimizer";
inline constexpr char kStateTextPrefix[] = "ddprun.state.";
inline constexpr char kUserTensorPrefix[] = "user.";
inline constexpr char kCpuRandomName[] = "random.cpu";                  // uint8 [ranks, bytes]
inline constexpr char kAcceleratorRandomName[] = "random.accelerator";  // uint8 [ranks, bytes]

// Restores a TrainingState from its parts, which may come from a file, another rank, or memory. Functions that take
// tensors throw c10::Error like LibTorch.
class StateLoader {
 public:
  struct Source {
    std::string path;                           // named in errors
    const SafetensorsHeader* header = nullptr;  // nullptr: the source has no such part
  };

  // Performs all checks that are possible before the first value is set. The arguments must outlive the object. `rank`
  // selects the random numbers. `model.header` nullptr: the source has no model.
  // Errors name the path: InvalidArgument: module, optimizer or an added tensor differ from the saved ones; DataLoss:
  // an entry is damaged.
  static absl::StatusOr<StateLoader> Create(TrainingState& state, Source model, Source rest, int rank);

  // Sets the tensor with this index in the part's header. `value` is in host memory or on any device.
  void SetModelTensor(size_t index, const at::Tensor& value);
  void SetRestTensor(size_t index, const at::Tensor& value);

  // Call when all tensors have been taken. Errors: those of the functions passed to AddText.
  absl::Status Install();

  // Added names that the source does not have; they keep their values.
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

// ---- LibTorch's default random number generators (dropout, randn, ...); functions throw c10::Error like LibTorch ----

// The states of the CPU's generator and of those of `devices`, one after the other: uint8 [n].
at::Tensor GetRandomState(absl::Span<const c10::Device> devices);

// Size in bytes of the CPU's part, which comes first.
int64_t CpuRandomStateBytes();

// Inverse of GetRandomState. `state` may be shorter (devices without saved state keep theirs) or longer (padding).
void SetRandomState(const at::Tensor& state, absl::Span<const c10::Device> devices);

// The devices other than the CPU that hold `tensors`, each once, in order.
std::vector<c10::Device> AcceleratorsOf(const NamedTensors& tensors);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_STATE_STATE_LOADER_H_
