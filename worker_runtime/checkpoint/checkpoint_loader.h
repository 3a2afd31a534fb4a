#ifndef DDPRUN_WORKER_RUNTIME_CHECKPOINT_CHECKPOINT_LOADER_H_
#define DDPRUN_WORKER_RUNTIME_CHECKPOINT_CHECKPOINT_LOADER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker_runtime/checkpoint/checkpoint_folder.h"
#include "worker_runtime/checkpoint/checkpoint_info.h"
#include "worker_runtime/checkpoint/module_state.h"
#include "worker_runtime/checkpoint/optimizer_state.h"
#include "worker_runtime/checkpoint/tensor_stream.h"
#include "worker_runtime/process_group/agreement.h"
#include "worker_runtime/process_group/process_group.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace torch::optim {
class Optimizer;
}  // namespace torch::optim

namespace ddprun {

// Loads the newest checkpoint on all ranks: rank 0 chooses it, all ranks check that it matches before anything is
// changed, then the tensors are read or sent. Contract and errors: see Checkpointer::Resume. For a single use.
class CheckpointLoader {
 public:
  // What is passed outlives the object; `group` and `optimizer` may be nullptr.
  CheckpointLoader(ProcessGroup* group, torch::nn::Module& module, torch::optim::Optimizer* optimizer,
                   const CheckpointFolder& folder, bool shared_folder, absl::Duration disk_timeout);

  // Throws c10::Error like LibTorch.
  absl::StatusOr<CheckpointInfo> Load();

 private:
  // What rank 0 tells all.
  struct Choice {
    bool found = false;
    int64_t step = 0;
    std::string model_path;
    std::string state_path;  // empty: none
    uint64_t model_checksum = 0;
    uint64_t state_checksum = 0;
    uint64_t model_bytes = 0;
    uint64_t state_bytes = 0;
    std::vector<std::string> skipped;
  };

  absl::Status Agree(const absl::Status& mine);
  absl::Status Choose();
  absl::Status SendChoice(const absl::Status& mine);
  absl::Status OpenChosen();
  absl::Status ReceiveHeader(const SafetensorsFile* file, const std::string& path, uint64_t file_bytes, SentFile* to);
  absl::Status Plan();
  absl::Status Read(const SentFile& from, VisitTensor visit);
  absl::Status ReadAll();
  void KeepRandom(const std::string& name, const at::Tensor& value);

  ProcessGroup* const group_;
  torch::optim::Optimizer* const optimizer_;
  const CheckpointFolder& folder_;
  const bool sent_;  // by rank 0
  const absl::Duration disk_timeout_;
  RankMeeting meeting_;

  const ModuleState module_;
  Choice choice_;
  std::optional<StoredCheckpoint> stored_;  // where this rank has the files open
  SentFile model_;
  SentFile state_;
  std::vector<std::vector<size_t>> match_;
  std::optional<OptimizerStateLoader> optimizer_loader_;
  at::Tensor cpu_random_;
  at::Tensor accelerator_random_;
  CheckpointInfo info_;
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_CHECKPOINT_CHECKPOINT_LOADER_H_
