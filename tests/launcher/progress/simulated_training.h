#ifndef DDPRUN_TESTS_LAUNCHER_PROGRESS_SIMULATED_TRAINING_H_
#define DDPRUN_TESTS_LAUNCHER_PROGRESS_SIMULATED_TRAINING_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "launcher/progress/progress_watch.h"

namespace ddprun::launcher {

// Progress reports of data-parallel training on one node, on simulated time. Each step has the phases data, forward,
// backward (in which all ranks wait for each other) and optimizer; times vary at random. The first step is slow. Rank 0
// writes checkpoints while the others wait for it in backward, and all ranks evaluate now and then.
struct SimulatedTraining {
  uint32_t seed = 1;
  int32_t ranks = 4;
  int64_t steps = 600;
  absl::Duration step = absl::Milliseconds(300);
  bool phases = true;  // false: one report a step, also for checkpoints and evaluations
  int64_t checkpoint_every = 100;
  absl::Duration checkpoint = absl::Seconds(20);
  int64_t evaluate_every = 150;
  absl::Duration evaluation = absl::Seconds(40);

  struct Planted {
    int32_t rank;
    int64_t step;
    std::string phase;  // "forward", "optimizer" ...
  };
  std::optional<Planted> hang;  // this rank never leaves that phase

  struct Result {
    std::vector<effect::Hang> hangs;
    std::vector<effect::Stragglers> stragglers;
    absl::Duration found_after;  // the first hang: from the last report of any rank
  };
  // Feeds the reports to a watch, and runs it for an hour more if a hang was planted.
  Result Run(ProgressWatch::Settings settings = {}) const;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_TESTS_LAUNCHER_PROGRESS_SIMULATED_TRAINING_H_
