#ifndef DDPRUN_WORKER_RUNTIME_CHECKPOINT_CHECKPOINT_INFO_H_
#define DDPRUN_WORKER_RUNTIME_CHECKPOINT_CHECKPOINT_INFO_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ddprun {

// How far training has come. What the trainer tells when it saves, and is told when it resumes. A plain value.
struct Progress {
  int64_t step = 0;              // optimizer steps done so far; names the checkpoint. Not negative.
  int64_t epoch = 0;             // the epoch that `sampler_position` is in
  int64_t sampler_position = 0;  // samples of the epoch that were used so far, of all ranks together
  uint64_t sampler_seed = 0;
  std::map<std::string, std::string> user = {};  // anything else; UTF-8
};

// What a checkpoint says about itself.
struct CheckpointInfo {
  Progress progress;
  int world_size = 0;   // ranks of the job that saved it; 0: not said
  std::string version;  // of the library that saved it; empty: not said
  std::string path;     // of its model's file; empty: there was no checkpoint, training starts from the beginning
  std::vector<std::string> skipped;  // newer checkpoints that are damaged, and why; one line each. Not in the file.
};

// Strings of a safetensors file's metadata: "ddprun.step", ..., "ddprun.user.KEY".
std::map<std::string, std::string> InfoToMetadata(const CheckpointInfo& info);

// The other way. What is not said, as in files that Python saved, keeps its value from `defaults`.
// Errors name `file`: DataLoss: an entry is no number; FailedPrecondition: written by a newer library in another
// format.
absl::StatusOr<CheckpointInfo> InfoFromMetadata(absl::string_view file,
                                                const std::map<std::string, std::string>& metadata,
                                                CheckpointInfo defaults);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_CHECKPOINT_CHECKPOINT_INFO_H_
