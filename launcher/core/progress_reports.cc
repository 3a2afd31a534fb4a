#include "launcher/core/progress_reports.h"

namespace ddprun::launcher {

void ProgressReports::BeginRound(uint64_t round) {
  if (round != round_) fresh_.clear();
  round_ = round;
}

void ProgressReports::OnProgress(int32_t local_rank, const worker_contract::LinkProgress& progress, SteadyTime at) {
  Report& report = fresh_[local_rank];
  report.at = at;
  report.progress.set_local_rank(local_rank);
  report.progress.set_step(progress.step);
  if (progress.samples.has_value()) {
    report.progress.set_samples(*progress.samples);
  } else {
    report.progress.clear_samples();
  }
  report.progress.set_phase(progress.phase);
  // A loss that comes once in several reports is not forgotten before it is told.
  if (progress.loss.has_value()) report.progress.set_loss(*progress.loss);
}

SteadyTime ProgressReports::NextDeadline() const { return fresh_.empty() ? SteadyTime::InfiniteFuture() : not_before_; }

std::optional<rendezvous::Progress> ProgressReports::Take(SteadyTime now) {
  if (now < NextDeadline()) return std::nullopt;
  not_before_ = now + rendezvous::kProgressInterval;
  rendezvous::Progress progress;
  progress.set_round(round_);
  while (!fresh_.empty() && progress.ranks_size() < rendezvous::kMaxRanksInProgress) {
    const auto first = fresh_.begin();
    rendezvous::RankProgress* rank = progress.add_ranks();
    *rank = std::move(first->second.progress);
    *rank->mutable_ago() = FromDuration(now - first->second.at);
    fresh_.erase(first);
  }
  return progress;
}

}  // namespace ddprun::launcher
