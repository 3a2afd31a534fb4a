#ifndef DDPRUN_LAUNCHER_PROGRESS_PROGRESS_BOARD_H_
#define DDPRUN_LAUNCHER_PROGRESS_PROGRESS_BOARD_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/steady_time.h"
#include "launcher/workers/link_peer.h"
#include "rendezvous/core/messages.h"

namespace ddprun::launcher {

// PURE: the last progress report of each of this node's workers in the current round, as shown by the launcher and sent
// to the server. Thread-compatible.
class ProgressBoard {
 public:
  struct Rank {
    std::optional<ReportedProgress> last;  // unset: no report in this round
    std::optional<double> loss;            // the last one reported; most reports have none
    SteadyTime moved;                      // time at which the rank entered its step and phase
    bool ended = false;
  };

  // Starts a round with this many workers on this node, and forgets earlier reports. Returns false, and changes
  // nothing, if the round is the current one.
  bool BeginRound(const rendezvous::Assignment& assignment, int32_t slots);

  // Returns false, and changes nothing, if there is no such rank, as before the first round. Times never decrease.
  bool OnProgress(int32_t local_rank, const ReportedProgress& progress);
  bool OnEnded(int32_t local_rank);

  uint64_t round() const { return round_; }  // 0: before the first round
  int32_t base_rank() const { return base_rank_; }
  int32_t restart_count() const { return restart_count_; }
  bool other_nodes() const { return other_nodes_; }          // true in a round of several nodes
  const std::vector<Rank>& ranks() const { return ranks_; }  // by local rank

 private:
  bool Exists(int32_t local_rank) const { return local_rank >= 0 && static_cast<size_t>(local_rank) < ranks_.size(); }

  uint64_t round_ = 0;
  int32_t base_rank_ = 0;
  int32_t restart_count_ = 0;
  bool other_nodes_ = false;
  std::vector<Rank> ranks_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROGRESS_PROGRESS_BOARD_H_
