#include "launcher/progress/progress_monitor.h"

#include <algorithm>
#include <utility>

namespace ddprun::launcher {

ProgressMonitor::ProgressMonitor(const LaunchConfig& config, EventLoop* loop, TerminalLine* line,
                                 HangMonitor::Events events)
    : hangs_(config.hang, &board_, loop, events),
      display_(config.output.progress, &board_, line, std::move(events.workers_running)),
      reports_(&board_) {}

void ProgressMonitor::BeginRound(const rendezvous::Assignment& assignment, int32_t slots) {
  if (!board_.BeginRound(assignment, slots)) return;
  hangs_.OnRound();
  display_.OnRound();
  reports_.OnRound();
}

void ProgressMonitor::OnProgress(int32_t local_rank, const ReportedProgress& progress) {
  if (!board_.OnProgress(local_rank, progress)) return;
  hangs_.OnProgress(local_rank);
  display_.OnProgress(local_rank, progress.at);
  reports_.OnProgress(local_rank);
}

void ProgressMonitor::OnEnded(int32_t local_rank) {
  if (board_.OnEnded(local_rank)) hangs_.OnEnded(local_rank);
}

SteadyTime ProgressMonitor::NextDeadline() const {
  return std::min({hangs_.NextDeadline(), display_.NextDeadline(), reports_.NextDeadline()});
}

std::optional<rendezvous::Progress> ProgressMonitor::OnDeadline(SteadyTime now) {
  if (now >= hangs_.NextDeadline()) hangs_.OnDeadline(now);
  if (now >= display_.NextDeadline()) display_.OnDeadline(now);
  return reports_.Take(now);
}

}  // namespace ddprun::launcher
