#include "launcher/progress/progress_reports.h"

namespace ddprun::launcher {

void ProgressReports::OnProgress(int32_t local_rank) {
  bool& with_loss = fresh_[local_rank];
  with_loss |= board_->ranks()[local_rank].last->progress.loss.has_value();
}

SteadyTime ProgressReports::NextDeadline() const { return fresh_.empty() ? SteadyTime::InfiniteFuture() : not_before_; }

std::optional<rendezvous::Progress> ProgressReports::Take(SteadyTime now) {
  if (now < NextDeadline()) return std::nullopt;
  not_before_ = now + rendezvous::kProgressInterval;
  rendezvous::Progress progress;
  progress.set_round(board_->round());
  while (!fresh_.empty() && progress.ranks_size() < rendezvous::kMaxRanksInProgress) {
    const auto [local_rank, with_loss] = *fresh_.begin();
    const ProgressBoard::Rank& rank = board_->ranks()[local_rank];
    const worker_contract::LinkProgress& last = rank.last->progress;
    rendezvous::RankProgress* report = progress.add_ranks();
    report->set_local_rank(local_rank);
    report->set_step(last.step);
    if (last.samples) report->set_samples(*last.samples);
    report->set_phase(last.phase);
    if (with_loss && rank.loss) report->set_loss(*rank.loss);
    *report->mutable_ago() = FromDuration(now - rank.last->at);
    fresh_.erase(fresh_.begin());
  }
  return progress;
}

}  // namespace ddprun::launcher
