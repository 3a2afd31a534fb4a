#ifndef DDPRUN_WORKER_RUNTIME_CHECKPOINT_CHECKPOINT_NAMES_H_
#define DDPRUN_WORKER_RUNTIME_CHECKPOINT_CHECKPOINT_NAMES_H_

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

// File names in a checkpoint directory, and which checkpoints to keep. PURE.
namespace ddprun {

// Which checkpoint of a directory. The newest one is the greatest.
struct CheckpointId {
  int64_t run = 1;  // counts the trainings that began from scratch in the directory, from 1
  int64_t step = 0;

  friend auto operator<=>(const CheckpointId&, const CheckpointId&) = default;
};

// "step_00001200.safetensors", of later runs "run_2_step_00001200.safetensors": the model. It is written last and
// completes the checkpoint.
std::string ModelFileName(CheckpointId id);
// Nullopt for any other name.
std::optional<CheckpointId> IdOfModelFile(absl::string_view name);

// "step_00001200.state-0123456789abcdef.safetensors": optimizer, random numbers and so on. `unique`: sixteen
// hexadecimal digits, so that the one of an older checkpoint of the same step is not overwritten.
std::string StateFileName(CheckpointId id, absl::string_view unique);
std::optional<CheckpointId> IdOfStateFile(absl::string_view name);

// "step_00001200.state-0123456789abcdef.rank_1_of_4.safetensors": what rank 1 holds of a sharded state. Rank 0's part
// is in the state file.
std::string ShardFileName(absl::string_view state_file, int rank, int ranks);
// The name of the state file to which a shard belongs; nullopt for any other name.
std::optional<std::string> StateFileOfShard(absl::string_view name);

// Which start of the workers saved a checkpoint. A later start is greater, whatever launcher started it.
struct CheckpointRound {
  int64_t round = 0;           // one more than that of the checkpoint that this start of the workers found
  int64_t launcher_round = 0;  // DDPRUN_ROUND, or the restart count: for starts that found the same checkpoint

  friend auto operator<=>(const CheckpointRound&, const CheckpointRound&) = default;
};

struct KnownCheckpoint {
  int64_t step = 0;
  bool valid = false;
};

// The steps to remove after `saved` was saved, among those of its run: all valid ones except the `keep` newest, and
// damaged ones older than all that are kept. Never `saved`. keep < 1: none.
std::vector<int64_t> StepsToRemove(std::vector<KnownCheckpoint> known, int64_t saved, int keep);

// What one rank has found in its directory.
struct CheckpointOffer {
  bool found = false;
  CheckpointId id;
  CheckpointRound round;
};

// The rank whose checkpoint all load: the newest; among equals that of the later round, then of the lowest rank.
// Nullopt: no rank has one.
std::optional<int> ChooseOffer(const std::vector<CheckpointOffer>& offers);

// Where a rank can write, as numbers that are equal if the place is.
struct CheckpointPlace {
  int64_t folder = 0;
  int64_t host = 0;
};

// The ranks besides rank 0 that write a copy, `copies` - 1 of them or as many as there are other folders: one per
// folder, on other hosts first, then the lowest.
std::vector<int> RanksOfCopies(const std::vector<CheckpointPlace>& places, int copies);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_CHECKPOINT_CHECKPOINT_NAMES_H_
