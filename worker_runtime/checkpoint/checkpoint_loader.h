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

// Loads the newest checkpoint that any rank holds intact. The ranks offer their newest ones; one of the ranks with the
// newest verifies it (if it is damaged, the ranks choose again among the rest); all ranks check that it matches before
// anything is changed; then that rank sends the tensors, or all ranks read them. Contract and errors: see
// Checkpointer::Resume. For a single use.
class CheckpointLoader {
 public:
  // The referenced arguments must outlive the object; `group` may be nullptr.
  CheckpointLoader(ProcessGroup* group, TrainingState& state, const CheckpointFolder& folder,
                   const CheckpointLoaderOptions& options);

  // Throws c10::Error, like LibTorch.
  absl::StatusOr<CheckpointInfo> Load();

  // After Load: the largest run of which any rank has a file; 0: none.
  int64_t highest_run() const { return highest_run_; }
  // After Load: names added to the state that the checkpoint does not have.
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
  const bool sent_;  // true: the chosen rank sends the tensors; false: all ranks read them
  RankMeeting meeting_;

  std::vector<CheckpointId> candidates_;  // this rank's checkpoints, newest first
  std::vector<int64_t> fingerprints_;     // one per rank, of its offer
  int64_t highest_run_ = 0;
  CheckpointId chosen_;
  std::string model_checksum_;              // the checksum of the chosen checkpoint's headers
  std::string state_checksum_;              // empty: the checkpoint has no state
  std::optional<StoredCheckpoint> stored_;  // set where this rank has the files open
  SentTensors model_;
  SentTensors rest_;
  PieceBuffers model_buffers_;
  PieceBuffers rest_buffers_;
  std::optional<StateLoader> loader_;
  std::vector<std::string> missing_;
  CheckpointInfo info_;
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_CHECKPOINT_CHECKPOINT_LOADER_H_
