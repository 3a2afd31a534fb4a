#include "launcher/progress/progress_board.h"

namespace ddprun::launcher {

bool ProgressBoard::BeginRound(const rendezvous::Assignment& assignment, int32_t slots) {
  if (assignment.round() == round_) return false;
  round_ = assignment.round();
  base_rank_ = assignment.base_rank();
  restart_count_ = assignment.restart_count();
  other_nodes_ = assignment.group_world_size() > 1;
  ranks_.assign(slots, Rank());
  return true;
}

bool ProgressBoard::OnProgress(int32_t local_rank, const ReportedProgress& progress) {
  if (!Exists(local_rank)) return false;
  Rank& rank = ranks_[local_rank];
  const bool moved = !rank.last || rank.last->progress.step != progress.progress.step ||
                     rank.last->progress.phase != progress.progress.phase;
  if (moved) rank.moved = progress.at;
  if (progress.progress.loss) rank.loss = progress.progress.loss;
  rank.last = progress;
  return true;
}

bool ProgressBoard::OnEnded(int32_t local_rank) {
  if (!Exists(local_rank)) return false;
  ranks_[local_rank].ended = true;
  return true;
}

}  // namespace ddprun::launcher
