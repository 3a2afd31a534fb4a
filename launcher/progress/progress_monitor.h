#ifndef DDPRUN_LAUNCHER_PROGRESS_PROGRESS_MONITOR_H_
#define DDPRUN_LAUNCHER_PROGRESS_PROGRESS_MONITOR_H_

#include <cstdint>
#include <optional>

#include "base/steady_time.h"
#include "launcher/config/launch_config.h"
#include "launcher/os/event_loop.h"
#include "launcher/progress/hang_monitor.h"
#include "launcher/progress/progress_board.h"
#include "launcher/progress/progress_display.h"
#include "launcher/progress/progress_reports.h"
#include "launcher/progress/terminal_line.h"
#include "launcher/workers/link_peer.h"
#include "rendezvous/core/messages.h"

namespace ddprun::launcher {

// Writes the progress of this node's workers on the board, and notifies all that read it: the hang monitor, the display
// (--progress) and the reports to the server. Belongs to the loop's thread, and must be destroyed before the loop.
class ProgressMonitor {
 public:
  // `line` outlives the monitor.
  ProgressMonitor(const LaunchConfig& config, EventLoop* loop, TerminalLine* line, HangMonitor::Events events);

  // Called when the workers begin the round; may be called again for the same round.
  void BeginRound(const rendezvous::Assignment& assignment, int32_t slots);
  void OnProgress(int32_t local_rank, const ReportedProgress& progress);
  void OnEnded(int32_t local_rank);

  SteadyTime NextDeadline() const;
  // Returns the message to send to the server now, if any.
  std::optional<rendezvous::Progress> OnDeadline(SteadyTime now);

  // Hides the display until the next report.
  void Hide() { display_.Hide(); }

 private:
  ProgressBoard board_;
  HangMonitor hangs_;
  ProgressDisplay display_;
  ProgressReports reports_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROGRESS_PROGRESS_MONITOR_H_
