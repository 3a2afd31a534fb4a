#ifndef DDPRUN_LAUNCHER_PROGRESS_PROGRESS_DISPLAY_H_
#define DDPRUN_LAUNCHER_PROGRESS_PROGRESS_DISPLAY_H_

#include <cstdint>
#include <functional>

#include "base/steady_time.h"
#include "launcher/config/launch_config.h"
#include "launcher/progress/progress_board.h"
#include "launcher/progress/progress_summary.h"
#include "launcher/progress/terminal_line.h"

namespace ddprun::launcher {

// Shows training progress (--progress): in the terminal's last row, updated every second, or as a log line every ten
// seconds if standard error is not a terminal. Has no timer while no worker reports progress. Belongs to the loop's
// thread.
class ProgressDisplay {
 public:
  // `workers_running` returns true while the round's workers are running: none has failed, and they are not being
  // stopped. The board and the terminal's line outlive the display.
  ProgressDisplay(ProgressMode mode, const ProgressBoard* board, TerminalLine* line,
                  std::function<bool()> workers_running);

  // The board has begun a round.
  void OnRound() { summary_.OnRound(); }
  // The board has a new report of this rank, received at this time.
  void OnProgress(int32_t local_rank, SteadyTime at);

  SteadyTime NextDeadline() const { return next_; }
  void OnDeadline(SteadyTime now);

  // Hides the display until the next report.
  void Hide();

 private:
  enum class Where { kNowhere, kReservedRow, kLog };
  static Where WhereFor(ProgressMode mode, const TerminalLine& line);

  const Where where_;
  const std::function<bool()> at_work_;
  TerminalLine* const line_;
  ProgressSummary summary_;
  SteadyTime next_ = SteadyTime::InfiniteFuture();
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROGRESS_PROGRESS_DISPLAY_H_
