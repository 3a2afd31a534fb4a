#include "rendezvous/core/job_progress.h"

#include <algorithm>
#include <limits>

namespace ddprun::rendezvous {

void JobProgress::Add(const Node& node, const Progress& progress, SteadyTime now) {
  if (progress.round() != round_) {
    round_ = progress.round();
    nodes_.clear();
    loss_rank_.reset();
  }
  OfNode& of_node = nodes_[node.join.node_id()];
  of_node.base_rank = node.base_rank;
  for (const RankProgress& rank : progress.ranks()) {
    if (rank.local_rank() < 0 || rank.local_rank() >= node.join.slots()) continue;
    of_node.ranks[rank.local_rank()] = {rank, now - ToDuration(rank.ago())};
    if (rank.has_loss()) AddLoss(node.base_rank + rank.local_rank(), rank.step(), rank.loss());
  }
}

void JobProgress::AddLoss(int32_t rank, int64_t step, double loss) {
  if (loss_rank_.has_value() && *loss_rank_ < rank) return;
  loss_rank_ = rank;
  // After a restart, lost steps are repeated: their new losses replace the old ones.
  while (!losses_.empty() && losses_.back().step() >= step) losses_.pop_back();
  if (!losses_.empty() && step - losses_.back().step() < loss_stride_) return;
  v1::LossPoint& point = losses_.emplace_back();
  point.set_step(step);
  point.set_loss(loss);
  if (losses_.size() <= kMaxLosses) return;
  for (size_t i = 0; 2 * i + 1 < losses_.size(); ++i) losses_[i] = losses_[2 * i + 1];
  losses_.resize(losses_.size() / 2);
  loss_stride_ = std::max<int64_t>(
      (losses_.back().step() - losses_.front().step()) / static_cast<int64_t>(losses_.size()), 2 * loss_stride_);
}

std::optional<v1::Training> JobProgress::Summarize(uint64_t round, SteadyTime now, bool with_losses) const {
  if (round_ != round) return std::nullopt;
  v1::Training training;
  absl::Duration ago = absl::InfiniteDuration();
  int64_t slowest = std::numeric_limits<int64_t>::max();
  int32_t loss_rank = std::numeric_limits<int32_t>::max();
  int64_t samples = 0;
  bool all_say_samples = true;
  for (const auto& [id, node] : nodes_) {
    for (const auto& [local_rank, rank] : node.ranks) {
      const RankProgress& progress = rank.progress;
      training.set_step(std::max(training.step(), progress.step()));
      slowest = std::min(slowest, progress.step());
      ago = std::min(ago, now - rank.at);
      all_say_samples = all_say_samples && progress.has_samples();
      samples += progress.samples();
      if (progress.has_loss() && node.base_rank + local_rank < loss_rank) {
        loss_rank = node.base_rank + local_rank;
        training.set_loss(progress.loss());
      }
    }
  }
  if (slowest == std::numeric_limits<int64_t>::max()) return std::nullopt;
  training.set_steps_behind(training.step() - slowest);
  if (all_say_samples) training.set_samples(samples);
  *training.mutable_ago() = FromDuration(ago);
  if (with_losses) training.mutable_losses()->Assign(losses_.begin(), losses_.end());
  return training;
}

void JobProgress::Show(const Node& node, uint64_t round, SteadyTime now, v1::Node* shown) const {
  const auto it = nodes_.find(node.join.node_id());
  if (round_ != round || it == nodes_.end() || !node.in_round()) return;
  for (const auto& [local_rank, rank] : it->second.ranks) {
    RankProgress* progress = shown->add_progress();
    *progress = rank.progress;
    *progress->mutable_ago() = FromDuration(now - rank.at);
  }
}

}  // namespace ddprun::rendezvous
