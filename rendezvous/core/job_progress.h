#ifndef DDPRUN_RENDEZVOUS_CORE_JOB_PROGRESS_H_
#define DDPRUN_RENDEZVOUS_CORE_JOB_PROGRESS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/steady_time.h"
#include "rendezvous/core/membership.h"
#include "rendezvous/core/messages.h"

namespace ddprun::rendezvous {

// PURE: the latest Progress report (protocol 6.1) of each rank of a job's latest round, and the course of the loss over
// all rounds. For display only; not in records. Memory is bounded by the number of ranks. Thread-compatible.
class JobProgress {
 public:
  static constexpr size_t kMaxLosses = 256;  // beyond it, every other loss is dropped

  // Adds a report. REQUIRES: `node` belongs to round `progress.round`, the job's latest.
  void Add(const Node& node, const Progress& progress, SteadyTime now);

  // Summarizes the progress of `round`; nullopt: no rank of it has reported.
  std::optional<v1::Training> Summarize(uint64_t round, SteadyTime now, bool with_losses) const;
  // Adds the progress of the node's ranks in `round`.
  void Show(const Node& node, uint64_t round, SteadyTime now, v1::Node* shown) const;

 private:
  struct Rank {
    RankProgress progress;
    SteadyTime at;
  };
  struct OfNode {
    int32_t base_rank = 0;
    std::map<int32_t, Rank> ranks;  // latest reports by local rank
  };

  void AddLoss(int32_t rank, int64_t step, double loss);

  uint64_t round_ = 0;
  absl::flat_hash_map<std::string, OfNode> nodes_;  // reports of round_ by node id
  // The rank whose losses are kept: the lowest rank of round_ that reports a loss. Its losses of all rounds follow.
  std::optional<int32_t> loss_rank_;
  std::vector<v1::LossPoint> losses_;
  int64_t loss_stride_ = 1;  // least distance, in steps, between two kept losses
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_JOB_PROGRESS_H_
