#ifndef DDPRUN_WORKER_RUNTIME_CHECKPOINT_CHECKPOINT_INFO_H_
#define DDPRUN_WORKER_RUNTIME_CHECKPOINT_CHECKPOINT_INFO_H_

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

// File names and metadata of checkpoints, and the decisions on them: which are removed, which one the ranks load, which
// ranks write copies. PURE.
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

// ---- metadata ----

// Training progress: passed to Save, returned by Resume. A plain value.
struct Progress {
  int64_t step = 0;              // optimizer steps done so far; names the checkpoint. Not negative.
  int64_t epoch = 0;             // the epoch of `sampler_position`
  int64_t sampler_position = 0;  // samples of the epoch used so far, summed over all ranks
  uint64_t sampler_seed = 0;
  std::map<std::string, std::string> user = {};  // anything else; UTF-8
};

// Metadata of a checkpoint.
struct CheckpointInfo {
  Progress progress;
  int world_size = 0;                // ranks of the job that saved it; 0: unknown
  int64_t run = 1;                   // number of trainings begun from scratch in the directory, up to this one
  std::string run_id;                // CheckpointerOptions::run_id, or the job's id; empty: unknown
  CheckpointRound round;             // start of the workers that saved it
  std::string version;               // version of the library that saved it; empty: unknown
  std::string path;                  // path of the model file; empty: no checkpoint, training starts from scratch
  std::vector<std::string> skipped;  // newer, damaged checkpoints, one line each with the reason. Not in the file.
};

// Encodes the info as entries of a safetensors file's metadata: "ddprun.step", ..., "ddprun.user.KEY".
std::map<std::string, std::string> InfoToMetadata(const CheckpointInfo& info);

// Inverse of InfoToMetadata. Missing entries, as in files saved by Python, keep their value from `defaults`.
// Errors name `file`: DataLoss: an entry is not a number; FailedPrecondition: another format, written by a newer
// library.
absl::StatusOr<CheckpointInfo> InfoFromMetadata(absl::string_view file,
                                                const std::map<std::string, std::string>& metadata,
                                                CheckpointInfo defaults);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_CHECKPOINT_CHECKPOINT_INFO_H_
