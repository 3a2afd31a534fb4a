#ifndef DDPRUN_LAUNCHER_PROGRESS_STRAGGLER_WATCH_H_
#define DDPRUN_LAUNCHER_PROGRESS_STRAGGLER_WATCH_H_

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace ddprun::launcher {

// A rank that makes the others wait in each step.
struct Straggler {
  int32_t local_rank = 0;
  absl::Duration own;     // its own time per step
  absl::Duration others;  // median of all ranks
  double ratio() const { return absl::FDivDuration(own, others); }

  friend bool operator==(const Straggler&, const Straggler&) = default;
};

// True for phases in which ranks wait for each other: names that contain "backward", "reduce", "barrier", "wait" or
// "sync", in any case.
bool IsSynchronizing(absl::string_view phase);

// PURE: finds stragglers by comparing the ranks' own time per step, which is the time before the first synchronizing
// phase. All ranks take equally long for a whole step, because the faster ones wait in that phase. A rank's own time is
// the median of its last kSteps steps, so that a rare phase (a checkpoint, a pause) makes no straggler.
// Thread-compatible.
class StragglerWatch {
 public:
  static constexpr int kSteps = 50;
  // A straggler's own time is at least kRatio times the median rank's, and exceeds it by at least this share of a step.
  static constexpr double kRatio = 1.5;
  static constexpr double kLeastShareOfStep = 0.05;

  explicit StragglerWatch(int32_t slots) : ranks_(slots) {}

  // The rank has spent `duration` in `phase`.
  void OnPhase(int32_t local_rank, absl::string_view phase, absl::Duration duration);
  // The rank has completed a step. `counts` is false for a step to ignore, such as a warm-up step. Once all of `ranks`
  // have completed kSteps steps, returns the stragglers among them, slowest first, and starts over.
  std::vector<Straggler> OnStep(int32_t local_rank, bool counts, const std::vector<int32_t>& ranks);

 private:
  struct Rank {
    absl::Duration own;  // own time in the current step
    absl::Duration step;
    bool synchronized = false;         // a synchronizing phase was seen in this step
    std::vector<absl::Duration> owns;  // own times of its last steps
    std::vector<absl::Duration> steps;
  };
  std::vector<Straggler> Compare(const std::vector<int32_t>& ranks);

  std::vector<Rank> ranks_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROGRESS_STRAGGLER_WATCH_H_
