#ifndef DDPRUN_LAUNCHER_PROGRESS_PROGRESS_DISPLAY_H_
#define DDPRUN_LAUNCHER_PROGRESS_PROGRESS_DISPLAY_H_

#include <cstdint>
#include <functional>

#include "base/steady_time.h"
#include "launcher/config/launch_config.h"
#include "launcher/progress/bottom_line.h"
#include "launcher/progress/progress_summary.h"
#include "launcher/workers/link_peer.h"
#include "rendezvous/core/messages.h"

namespace ddprun::launcher {

// Shows training progress (--progress): in the terminal's last row, updated every second, or as a log line every ten
// seconds if standard error is not a terminal. Has no timer while no worker reports progress. Belongs to the loop's
// thread.
class ProgressDisplay {
 public:
  // `workers_running` returns true while the round's workers are running: none has failed, and they are not being stopped.
  ProgressDisplay(ProgressMode mode, std::function<bool()> workers_running);

  // Called when the workers begin the round; may be called again for the same round.
  void BeginRound(const rendezvous::Assignment& assignment, int32_t slots);
  void OnProgress(int32_t local_rank, const ReportedProgress& progress);
  void OnEnded(int32_t local_rank) { summary_.OnEnded(local_rank); }

  SteadyTime NextDeadline() const { return next_; }
  void OnDeadline(SteadyTime now);

  // Hides the display until the next report.
  void Hide();

 private:
  enum class Where { kNowhere, kBottomLine, kLog };
  static Where WhereFor(ProgressMode mode);

  const Where where_;
  const std::function<bool()> at_work_;
  uint64_t round_ = 0;
  ProgressSummary summary_;
  BottomLine line_;
  SteadyTime next_ = SteadyTime::InfiniteFuture();
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROGRESS_PROGRESS_DISPLAY_H_
