#ifndef DDPRUN_LAUNCHER_PROGRESS_STRAGGLER_WATCH_H_
#define DDPRUN_LAUNCHER_PROGRESS_STRAGGLER_WATCH_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace ddprun::launcher {

// A rank that makes the others wait in each step.
struct Straggler {
  int32_t local_rank = 0;
  absl::Duration own;     // its own time of a step
  absl::Duration others;  // the median of the ranks
  double ratio() const { return absl::FDivDuration(own, others); }

  friend bool operator==(const Straggler&, const Straggler&) = default;
};

// In such a phase the ranks wait for each other: "backward", "all_reduce", "barrier", "wait", "sync" and what has one
// of these in its name.
bool IsSynchronizing(absl::string_view phase);

// PURE: compares the ranks' own times: of each step what comes before its first synchronizing phase. All ranks take
// equally long for a step, and whoever waits does so in that phase. A rank's time is the median of its last kSteps
// steps, so that no rare phase (a checkpoint, a pause) makes a straggler. Thread-compatible.
class StragglerWatch {
 public:
  static constexpr int kSteps = 50;
  // A straggler's own time is at least that of the median rank times this, and the difference this share of a step.
  static constexpr double kRatio = 1.5;
  static constexpr double kLeastShareOfStep = 0.05;

  explicit StragglerWatch(int32_t slots) : ranks_(slots) {}

  // This rank has been in `phase` for so long.
  void OnPhase(int32_t local_rank, absl::string_view phase, absl::Duration duration);
  // Its step is over. One that is not to count, as the first few: `counts` is false. Once all of `ranks` have made
  // kSteps steps, returns the stragglers among them, the slowest first, and begins anew.
  std::vector<Straggler> OnStep(int32_t local_rank, bool counts, const std::vector<int32_t>& ranks);

 private:
  struct Rank {
    absl::Duration own;  // of the step it is in
    absl::Duration step;
    bool synchronized = false;         // it has been in a synchronizing phase of this step
    std::vector<absl::Duration> owns;  // of its last steps
    std::vector<absl::Duration> steps;
  };
  std::vector<Straggler> Compare(const std::vector<int32_t>& ranks);

  std::vector<Rank> ranks_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROGRESS_STRAGGLER_WATCH_H_
