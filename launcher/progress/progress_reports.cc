#include "launcher/progress/progress_reports.h"

namespace ddprun::launcher {

void ProgressReports::BeginRound(uint64_t round) {
  if (round != round_) fresh_.clear();
  round_ = round;
}

void ProgressReports::OnProgress(int32_t local_rank, const worker_contract::LinkProgress& progress, SteadyTime at) {
  Report& report = fresh_[local_rank];
  report.at = at;
  report.progress.local_rank = local_rank;
  report.progress.step = progress.step;
  report.progress.samples = progress.samples;
  report.progress.phase = progress.phase;
  // Keep an unsent loss: not every report contains one.
  if (progress.loss.has_value()) report.progress.loss = progress.loss;
}

SteadyTime ProgressReports::NextDeadline() const { return fresh_.empty() ? SteadyTime::InfiniteFuture() : not_before_; }

std::optional<rendezvous::Progress> ProgressReports::Take(SteadyTime now) {
  if (now < NextDeadline()) return std::nullopt;
  not_before_ = now + rendezvous::kProgressInterval;
  rendezvous::Progress progress{.round = round_};
  while (!fresh_.empty() && progress.ranks.size() < rendezvous::kMaxRanksInProgress) {
    const auto first = fresh_.begin();
    progress.ranks.push_back(first->second.progress);
    progress.ranks.back().ago = now - first->second.at;
    fresh_.erase(first);
  }
  return progress;
}

}  // namespace ddprun::launcher
