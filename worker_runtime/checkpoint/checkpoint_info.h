#ifndef DDPRUN_WORKER_RUNTIME_CHECKPOINT_CHECKPOINT_INFO_H_
#define DDPRUN_WORKER_RUNTIME_CHECKPOINT_CHECKPOINT_INFO_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker_runtime/checkpoint/checkpoint_names.h"

namespace ddprun {

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
