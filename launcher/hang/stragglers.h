#ifndef DDPRUN_LAUNCHER_HANG_STRAGGLERS_H_
#define DDPRUN_LAUNCHER_HANG_STRAGGLERS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "launcher/hang/judge.h"

// PURE. Finds the ranks for which a running job waits in each step.
//
// Backward takes equally long on all ranks, because its collectives wait for the last one to enter. The times of
// entering tell which one that is: for each collective of a group, how long after the median rank each rank entered it.
// Only collectives before which ranks wait long count; a step has others, which all enter together.
//
// Ranks of a group differ by design if it spans the stages of a pipeline: stages enter one after the other, in even
// steps. A straggler is far from all others, which are close together. Groups whose members send to each other are left
// out. A rank that waits for a straggler in one group is late in its other groups, and not to blame.
namespace ddprun::launcher {

struct Stragglers {
  std::vector<int32_t> ranks;  // sorted, not empty
  absl::Duration late;         // time for which they enter after the others, in the median
  double share = 0;            // part of a step for which the others wait, at least
  std::string text;            // one line
};

// REQUIRES: entered_us of all nodes is on one clock. Linear in the evidence, but for sorting.
std::optional<Stragglers> FindStragglers(const JobEvidence& job);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_HANG_STRAGGLERS_H_
