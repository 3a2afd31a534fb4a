#ifndef DDPRUN_WORKER_RUNTIME_CHECKPOINT_CHECKPOINT_CONTENT_H_
#define DDPRUN_WORKER_RUNTIME_CHECKPOINT_CHECKPOINT_CONTENT_H_

#include <ATen/core/Tensor.h>

#include <vector>

#include "absl/status/statusor.h"
#include "worker_runtime/checkpoint/checkpoint_info.h"
#include "worker_runtime/checkpoint/safetensors_header.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace torch::optim {
class Optimizer;
}  // namespace torch::optim

namespace ddprun {

// Names in the state's file and its metadata.
inline constexpr char kOptimizerGroupsKey[] = "ddprun.optimizer";
inline constexpr char kCpuRandomName[] = "random.cpu";                  // uint8 [ranks, bytes]
inline constexpr char kAcceleratorRandomName[] = "random.accelerator";  // uint8 [ranks, bytes]

struct FileContent {
  SafetensorsHeader layout;
  std::vector<at::Tensor> tensors;  // those of `layout`, in its order; the trainer's own, not copies
};

// What goes into a checkpoint's two files.
struct CheckpointContent {
  FileContent model;
  FileContent state;
};

// `random`: GetRandomState of every rank, padded to the same length. Errors: those of DescribeTensors and
// GetOptimizerState. Throws c10::Error like LibTorch.
absl::StatusOr<CheckpointContent> CollectContent(const torch::nn::Module& module, torch::optim::Optimizer* optimizer,
                                                 const std::vector<at::Tensor>& random, const CheckpointInfo& info);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_CHECKPOINT_CHECKPOINT_CONTENT_H_
