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
#include "worker_runtime/checkpoint/checkpoint_names.h"
#include "worker_runtime/process_group/agreement.h"
#include "worker_runtime/process_group/process_group.h"
#include "worker_runtime/state/state_loader.h"
#include "worker_runtime/state/tensor_stream.h"
#include "worker_runtime/state/training_state.h"

namespace ddprun {

struct CheckpointLoaderOptions {
  bool shared_folder = false;
  std::string run_id = "";  // not empty: only checkpoints with this id
  absl::Duration disk_timeout = absl::Hours(1);
};

// Loads the newest checkpoint that any rank holds whole: the ranks offer what they have, one of those with the newest
// verifies it (if it is damaged, they go on with what is left), all check that it matches before anything is changed,
// then that rank sends the tensors, or all read them. Contract and errors: see Checkpointer::Resume. For a single use.
class CheckpointLoader {
 public:
  // What is passed outlives the object; `group` may be nullptr.
  CheckpointLoader(ProcessGroup* group, TrainingState& state, const CheckpointFolder& folder,
                   const CheckpointLoaderOptions& options);

  // Throws c10::Error like LibTorch.
  absl::StatusOr<CheckpointInfo> Load();

  // After Load: the largest run that any rank has a file of; 0: none.
  int64_t highest_run() const { return highest_run_; }
  // After Load: added names of the state that the checkpoint does not have.
  const std::vector<std::string>& missing() const { return missing_; }

 private:
  absl::Status Agree(const absl::Status& mine);
  absl::Status ListCandidates();
  absl::StatusOr<std::vector<CheckpointOffer>> GatherOffers();
  absl::StatusOr<std::optional<int>> Choose();
  absl::StatusOr<std::string> Verify(int root);
  absl::Status Open(int root);
  absl::Status OpenShared();
  absl::Status Plan();
  absl::Status ReadAll(int root);

  ProcessGroup* const group_;
  TrainingState& state_;
  const CheckpointFolder& folder_;
  const CheckpointLoaderOptions options_;
  const bool sent_;  // by the rank that was chosen
  RankMeeting meeting_;

  std::vector<CheckpointId> candidates_;  // of this rank, newest first
  std::vector<int64_t> fingerprints_;     // of each rank's offer
  int64_t highest_run_ = 0;
  CheckpointId chosen_;
  std::string model_checksum_;              // of the headers of the chosen one
  std::string state_checksum_;              // empty: it has no state
  std::optional<StoredCheckpoint> stored_;  // where this rank has the files open
  SentTensors model_;
  SentTensors rest_;
  at::Tensor model_buffer_;
  at::Tensor rest_buffer_;
  std::optional<StateLoader> loader_;
  std::vector<std::string> missing_;
  CheckpointInfo info_;
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_CHECKPOINT_CHECKPOINT_LOADER_H_
