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

// PURE: what the ranks of a job's latest round have reported (messages.h, Progress), and how its loss went. For people:
// nothing is decided by it, and it is not kept in records. Bounded by the slots of the nodes. Thread-compatible.
class JobProgress {
 public:
  static constexpr size_t kMaxLosses = 256;  // then every other one is dropped, and only every other one is taken

  // `node` is of round `progress.round`, the latest.
  void Add(const Node& node, const Progress& progress, SteadyTime now);

  // Fills in `training`, and what belongs to its nodes. A node of an earlier round has none.
  void Show(SteadyTime now, JobView* view) const;

 private:
  struct Rank {
    RankProgress progress;
    SteadyTime at;
  };
  struct OfNode {
    int32_t base_rank = 0;
    std::map<int32_t, Rank> ranks;  // by local rank
  };

  void AddLoss(int32_t rank, int64_t step, double loss);
  std::optional<TrainingView> Summarize(SteadyTime now) const;

  uint64_t round_ = 0;
  absl::flat_hash_map<std::string, OfNode> nodes_;  // by node id
  // The losses are those of the lowest rank of the round that reports any; they are kept over all rounds.
  std::optional<int32_t> loss_rank_;
  std::vector<std::pair<int64_t, double>> losses_;
  int64_t loss_stride_ = 1;  // steps
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_JOB_PROGRESS_H_
