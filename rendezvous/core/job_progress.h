#ifndef DDPRUN_RENDEZVOUS_CORE_JOB_PROGRESS_H_
#define DDPRUN_RENDEZVOUS_CORE_JOB_PROGRESS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/steady_time.h"
#include "rendezvous/core/job_view.h"
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

  // Sets `view->training`, and the progress of each node of `view->nodes` that belongs to the latest round.
  void Show(SteadyTime now, JobView* view) const;

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
  // Returns the summary of all ranks; nullopt if none has reported.
  std::optional<TrainingView> Summarize(SteadyTime now) const;

  uint64_t round_ = 0;
  absl::flat_hash_map<std::string, OfNode> nodes_;  // reports of round_ by node id
  // The rank whose losses are kept: the lowest rank of round_ that reports a loss. Its losses of all rounds follow.
  std::optional<int32_t> loss_rank_;
  std::vector<std::pair<int64_t, double>> losses_;
  int64_t loss_stride_ = 1;  // least distance, in steps, between two kept losses
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_JOB_PROGRESS_H_
