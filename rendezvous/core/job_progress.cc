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
  while (!losses_.empty() && losses_.back().first >= step) losses_.pop_back();
  if (!losses_.empty() && step - losses_.back().first < loss_stride_) return;
  losses_.emplace_back(step, loss);
  if (losses_.size() <= kMaxLosses) return;
  for (size_t i = 0; 2 * i + 1 < losses_.size(); ++i) losses_[i] = losses_[2 * i + 1];
  losses_.resize(losses_.size() / 2);
  loss_stride_ = std::max<int64_t>(
      (losses_.back().first - losses_.front().first) / static_cast<int64_t>(losses_.size()), 2 * loss_stride_);
}

std::optional<TrainingView> JobProgress::Summarize(SteadyTime now) const {
  TrainingView view;
  view.ago = absl::InfiniteDuration();
  int64_t slowest = std::numeric_limits<int64_t>::max();
  int32_t loss_rank = std::numeric_limits<int32_t>::max();
  int64_t samples = 0;
  bool all_say_samples = true;
  for (const auto& [id, node] : nodes_) {
    for (const auto& [local_rank, rank] : node.ranks) {
      const RankProgress& progress = rank.progress;
      view.step = std::max(view.step, progress.step());
      slowest = std::min(slowest, progress.step());
      view.ago = std::min(view.ago, now - rank.at);
      all_say_samples = all_say_samples && progress.has_samples();
      samples += progress.samples();
      if (progress.has_loss() && node.base_rank + local_rank < loss_rank) {
        loss_rank = node.base_rank + local_rank;
        view.loss = progress.loss();
      }
    }
  }
  if (slowest == std::numeric_limits<int64_t>::max()) return std::nullopt;
  view.behind = view.step - slowest;
  if (all_say_samples) view.samples = samples;
  return view;
}

void JobProgress::Show(SteadyTime now, JobView* view) const {
  if (round_ != view->round || round_ == 0) return;
  view->training = Summarize(now);
  if (view->nodes.empty()) return;
  if (view->training.has_value()) view->training->losses = losses_;
  for (v1::Node& node : view->nodes) {
    const auto it = nodes_.find(node.node_id());
    if (it == nodes_.end() || node.group_rank() < 0) continue;
    for (const auto& [local_rank, rank] : it->second.ranks) {
      RankProgress* progress = node.add_progress();
      *progress = rank.progress;
      *progress->mutable_ago() = FromDuration(now - rank.at);
    }
  }
}

}  // namespace ddprun::rendezvous
