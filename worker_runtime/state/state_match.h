#ifndef DDPRUN_WORKER_RUNTIME_STATE_STATE_MATCH_H_
#define DDPRUN_WORKER_RUNTIME_STATE_STATE_MATCH_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker_runtime/safetensors/safetensors_header.h"

// Matches the tensors of a file with those of a module. PURE.
namespace ddprun {

// A parameter or buffer to load.
struct StateTarget {
  std::vector<std::string> names;  // all its names; several if it is tied
  std::vector<int64_t> shape;
};

// Returns the indices of the targets that each tensor of the header is loaded into. A target matches a tensor
// with any of its names, or the one that the file's metadata names instead, as with Python's save_model:
// {"lm_head.weight": "wte.weight"}.
// Errors: InvalidArgument names `file` and all mismatches (a few of each kind, and the number of others): missing keys,
// unexpected keys, size mismatches.
absl::StatusOr<std::vector<std::vector<size_t>>> MatchState(absl::string_view file,
                                                            const std::vector<StateTarget>& targets,
                                                            const SafetensorsHeader& header);

// "[2, 3]"
std::string ShapeText(const std::vector<int64_t>& shape);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_STATE_STATE_MATCH_H_
