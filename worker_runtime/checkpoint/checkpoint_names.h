#ifndef DDPRUN_WORKER_RUNTIME_CHECKPOINT_CHECKPOINT_NAMES_H_
#define DDPRUN_WORKER_RUNTIME_CHECKPOINT_CHECKPOINT_NAMES_H_

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

// File names in a checkpoint directory, and the retention of checkpoints. PURE.
namespace ddprun {

// Identifies a checkpoint of a directory. The newest one is the greatest.
struct CheckpointId {
  int64_t run = 1;  // number of trainings begun from scratch in the directory, up to this one; from 1
  int64_t step = 0;

  friend auto operator<=>(const CheckpointId&, const CheckpointId&) = default;
};

// Name of the model file: "step_00001200.safetensors", in later runs "run_2_step_00001200.safetensors". It is written
// last and completes the checkpoint.
std::string ModelFileName(CheckpointId id);
// Nullopt for any other name.
std::optional<CheckpointId> IdOfModelFile(absl::string_view name);

// Name of the file with optimizer, random numbers and so on: "step_00001200.state-0123456789abcdef.safetensors".
// `unique`: sixteen hexadecimal digits, so that the file of an older checkpoint of the same step is not overwritten.
std::string StateFileName(CheckpointId id, absl::string_view unique);
std::optional<CheckpointId> IdOfStateFile(absl::string_view name);

// Identifies the start of the workers that saved a checkpoint. A later start is greater, regardless of which launcher
// started it.
struct CheckpointRound {
  int64_t round = 0;           // one more than that of the checkpoint that this start of the workers found
  int64_t launcher_round = 0;  // DDPRUN_ROUND, or the restart count: orders starts that found the same checkpoint

  friend auto operator<=>(const CheckpointRound&, const CheckpointRound&) = default;
};

struct KnownCheckpoint {
  int64_t step = 0;
  bool valid = false;
};

// Returns the steps to remove after `saved` was saved, among those of its run: all valid ones except the `keep` newest,
// and damaged ones older than all that are kept. Never `saved`. keep < 1: none.
std::vector<int64_t> StepsToRemove(std::vector<KnownCheckpoint> known, int64_t saved, int keep);

// The newest checkpoint that one rank found in its directory.
struct CheckpointOffer {
  bool found = false;
  CheckpointId id;
  CheckpointRound round;
};

// Returns the rank whose checkpoint all ranks load: the newest; among equals, that of the later round, then that of the
// lowest rank. Nullopt: no rank has one.
std::optional<int> ChooseOffer(const std::vector<CheckpointOffer>& offers);

// Location where a rank writes. Equal numbers mean the same folder or host.
struct CheckpointPlace {
  int64_t folder = 0;
  int64_t host = 0;
};

// Returns the ranks besides rank 0 that write a copy: `copies` - 1 of them, or as many as there are other folders. One
// per folder; ranks on other hosts first, then lower ranks.
std::vector<int> RanksOfCopies(const std::vector<CheckpointPlace>& places, int copies);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_CHECKPOINT_CHECKPOINT_NAMES_H_
