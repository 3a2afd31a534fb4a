#ifndef DDPRUN_LAUNCHER_PROGRESS_PROGRESS_SUMMARY_H_
#define DDPRUN_LAUNCHER_PROGRESS_PROGRESS_SUMMARY_H_

#include <cstdint>
#include <deque>
#include <string>

#include "base/steady_time.h"
#include "launcher/progress/progress_board.h"

namespace ddprun::launcher {

// PURE: summarizes training progress in one line, from the reports of this node's workers (docs/worker_protocol.md
// 3.2) on the board:
//
//   step 120, 4.21 steps/s, loss 2.312, phase backward; slowest rank 3 (step 118, forward for 2.3s); 1 restart
//
// Step, loss and phase are those of the first local rank that has reported them; the speed is that of the last ten
// seconds. The slowest rank is shown if it is a step behind or has not moved for a second. Thread-compatible.
class ProgressSummary {
 public:
  explicit ProgressSummary(const ProgressBoard* board) : board_(board) {}

  // The board has begun a round.
  void OnRound();

  // The board has a new report of this rank.
  void OnProgress(int32_t local_rank);

  // Empty if no running worker has reported anything in this round.
  std::string Text(SteadyTime now) const;

 private:
  struct Sample {
    SteadyTime at;
    int64_t step = 0;
  };

  std::string SpeedText(SteadyTime now) const;
  std::string SlowestText(SteadyTime now) const;

  const ProgressBoard* const board_;
  std::deque<Sample> samples_;  // times at which furthest_ was reached
  int64_t furthest_ = -1;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROGRESS_PROGRESS_SUMMARY_H_
