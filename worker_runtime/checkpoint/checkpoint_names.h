#ifndef DDPRUN_WORKER_RUNTIME_CHECKPOINT_CHECKPOINT_NAMES_H_
#define DDPRUN_WORKER_RUNTIME_CHECKPOINT_CHECKPOINT_NAMES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

// File names in a checkpoint directory, and which checkpoints to keep. PURE.
namespace ddprun {

// "step_00001200.safetensors": the model. It is written last and completes the checkpoint.
std::string ModelFileName(int64_t step);
// The step of such a name; nullopt for any other name.
std::optional<int64_t> StepOfModelFile(absl::string_view name);

// "step_00001200.state-0123456789abcdef.safetensors": optimizer and random numbers, named after its content, so that
// the one of an older checkpoint of the same step is not overwritten.
std::string StateFileName(int64_t step, uint64_t checksum);
bool IsStateFile(absl::string_view name);

struct KnownCheckpoint {
  int64_t step = 0;
  bool valid = false;
};

// The steps to remove after `saved` was saved: all valid ones except the `keep` newest, and damaged ones older than all
// that are kept. Never `saved`. keep < 1: none.
std::vector<int64_t> StepsToRemove(std::vector<KnownCheckpoint> known, int64_t saved, int keep);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_CHECKPOINT_CHECKPOINT_NAMES_H_
