#include "rendezvous/http/progress_view.h"

#include <algorithm>
#include <limits>

namespace ddprun::http {

std::optional<ProgressView> Summarize(const rendezvous::JobView& job) {
  ProgressView view;
  view.ago = absl::InfiniteDuration();
  int64_t slowest = std::numeric_limits<int64_t>::max();
  int32_t loss_rank = std::numeric_limits<int32_t>::max();
  int64_t samples = 0;
  bool all_say_samples = true;
  for (const rendezvous::NodeView& node : job.nodes) {
    for (const rendezvous::RankProgress& rank : node.progress) {
      view.step = std::max(view.step, rank.step);
      slowest = std::min(slowest, rank.step);
      view.ago = std::min(view.ago, rank.ago);
      all_say_samples = all_say_samples && rank.samples.has_value();
      samples += rank.samples.value_or(0);
      const int32_t number = node.base_rank + rank.local_rank;
      if (rank.loss.has_value() && number < loss_rank) {
        loss_rank = number;
        view.loss = rank.loss;
      }
    }
  }
  if (slowest == std::numeric_limits<int64_t>::max()) return std::nullopt;
  view.behind = view.step - slowest;
  if (all_say_samples) view.samples = samples;
  return view;
}

}  // namespace ddprun::http
