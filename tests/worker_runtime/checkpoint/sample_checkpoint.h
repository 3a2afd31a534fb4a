#ifndef DDPRUN_TESTS_WORKER_RUNTIME_CHECKPOINT_SAMPLE_CHECKPOINT_H_
#define DDPRUN_TESTS_WORKER_RUNTIME_CHECKPOINT_SAMPLE_CHECKPOINT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker_runtime/checkpoint/checkpoint_folder.h"

namespace ddprun::testing {

// Checkpoints whose content follows from their step, so that it can be told whether what was found is what was saved.

// Saves one with `bytes` bytes in the model and as many in the state.
absl::Status SaveSample(CheckpointFolder& folder, int64_t step, int keep, size_t bytes = 4000,
                        CheckpointRound round = {}, int64_t run = 1);

struct Search {
  std::optional<StoredCheckpoint> newest;  // nullopt: there is no usable checkpoint
  std::vector<std::string> skipped;        // newer ones that are damaged: one line each, with file and reason
};
// The intact checkpoint with the largest step.
absl::StatusOr<Search> FindNewest(const CheckpointFolder& folder);

// The step of the newest checkpoint if its content is that of SaveSample; 0 if there is none.
// Errors: DataLoss if its content is another; those of FindNewest.
absl::StatusOr<int64_t> NewestSample(const CheckpointFolder& folder);

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_WORKER_RUNTIME_CHECKPOINT_SAMPLE_CHECKPOINT_H_
