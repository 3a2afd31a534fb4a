#ifndef DDPRUN_LAUNCHER_CONFIG_NODE_COUNT_H_
#define DDPRUN_LAUNCHER_CONFIG_NODE_COUNT_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "rendezvous/core/limits.h"

namespace ddprun::launcher {

inline constexpr int kMaxNodes = rendezvous::kMaxNodes;
inline constexpr int kMaxProcesses = rendezvous::kMaxSlots;  // per node

// Number of nodes of a job: 0 < min <= max <= kMaxNodes.
struct NodeCount {
  int min = 1;
  int max = 1;
  friend bool operator==(const NodeCount&, const NodeCount&) = default;
};

// Parses "N" or "MIN:MAX". InvalidArgument: one line, without the flag's name.
absl::StatusOr<NodeCount> ParseNodeCount(absl::string_view text);

// Number of workers of one node: a number, or one per device of the node.
struct ProcessCount {
  enum class Kind {
    kNumber,
    kCpu,   // processors that the launcher may use
    kGpu,   // GPUs of the node; an error if it has none
    kAuto,  // GPUs if there are any, else processors
  };
  Kind kind = Kind::kNumber;
  int number = 1;  // if kNumber: 1 to kMaxProcesses
  friend bool operator==(const ProcessCount&, const ProcessCount&) = default;
};

// Parses a number, "cpu", "gpu" or "auto". InvalidArgument as above.
absl::StatusOr<ProcessCount> ParseProcessCount(absl::string_view text);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CONFIG_NODE_COUNT_H_
