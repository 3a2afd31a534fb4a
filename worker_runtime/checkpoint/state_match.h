#ifndef DDPRUN_WORKER_RUNTIME_CHECKPOINT_STATE_MATCH_H_
#define DDPRUN_WORKER_RUNTIME_CHECKPOINT_STATE_MATCH_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker_runtime/checkpoint/safetensors_header.h"

// Which tensor of a file belongs to which of a module. PURE.
namespace ddprun {

// A parameter or buffer that wants a value.
struct StateTarget {
  std::vector<std::string> names;  // all that it has; several if it is tied
  std::vector<int64_t> shape;
};

// For each tensor of the header the indices of the targets that get it. A target takes the tensor of any of its names,
// or the one that the file's metadata names in its stead: {"lm_head.weight": "wte.weight"}, as Python's save_model
// does.
// Errors: InvalidArgument names `file` and all that does not fit (a few of each kind, and how many more): missing in
// the file, unexpected in the file, of another shape.
absl::StatusOr<std::vector<std::vector<size_t>>> MatchState(absl::string_view file,
                                                            const std::vector<StateTarget>& targets,
                                                            const SafetensorsHeader& header);

// "[2, 3]"
std::string ShapeText(const std::vector<int64_t>& shape);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_CHECKPOINT_STATE_MATCH_H_
