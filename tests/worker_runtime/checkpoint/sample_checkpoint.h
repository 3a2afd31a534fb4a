#ifndef DDPRUN_TESTS_WORKER_RUNTIME_CHECKPOINT_SAMPLE_CHECKPOINT_H_
#define DDPRUN_TESTS_WORKER_RUNTIME_CHECKPOINT_SAMPLE_CHECKPOINT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker_runtime/checkpoint/checkpoint_folder.h"

namespace ddprun::testing {

// Saves a checkpoint whose content follows from its step, with `bytes` bytes in the model and as many in the state.
absl::Status SaveSample(CheckpointFolder& folder, int64_t step, int keep, size_t bytes = 4000,
                        CheckpointRound round = {}, int64_t run = 1);

struct Search {
  std::optional<StoredCheckpoint> newest;  // nullopt: there is no usable checkpoint
  std::vector<std::string> skipped;        // newer, damaged ones: one line each, with file and reason
};

// Finds the intact checkpoint with the largest step.
absl::StatusOr<Search> FindNewest(const CheckpointFolder& folder);

// Step of the newest checkpoint; 0 if there is none.
// Errors: DataLoss if its content is not that of SaveSample; those of FindNewest.
absl::StatusOr<int64_t> NewestSample(const CheckpointFolder& folder);

// Names in a folder, sorted.
std::vector<std::string> NamesIn(const std::string& folder);

void Overwrite(const std::string& path, absl::string_view content);

// Changes bits of the last byte of a file.
void Damage(const std::string& path, char bits = 1);

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_WORKER_RUNTIME_CHECKPOINT_SAMPLE_CHECKPOINT_H_
