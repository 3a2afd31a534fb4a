#ifndef DDPRUN_LAUNCHER_PROGRESS_PROGRESS_SUMMARY_H_
#define DDPRUN_LAUNCHER_PROGRESS_PROGRESS_SUMMARY_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "base/steady_time.h"
#include "rendezvous/core/messages.h"
#include "worker_contract/worker_link.h"

namespace ddprun::launcher {

// PURE: summarizes training progress in one line, from the reports of this node's workers (docs/worker_protocol.md
// 3.2):
//
//   step 120, 4.21 steps/s, loss 2.312, phase backward; slowest rank 3 (step 118, forward for 2.3s); 1 restart
//
// Step, loss and phase are those of the first local rank that has reported them; the speed is that of the last ten
// seconds. The slowest rank is shown if it is a step behind or has not moved for a second. Thread-compatible.
class ProgressSummary {
 public:
  // Starts a round with this many workers on this node. Forgets earlier reports.
  void StartRound(const rendezvous::Assignment& assignment, int32_t slots);

  // Ignored outside a round. Times never decrease.
  void OnProgress(int32_t local_rank, const worker_contract::LinkProgress& progress, SteadyTime now);
  void OnEnded(int32_t local_rank);

  // Empty if no running worker has reported anything in this round.
  std::string Text(SteadyTime now) const;

 private:
  struct Rank {
    std::optional<worker_contract::LinkProgress> last;
    SteadyTime moved;  // when it entered its step and phase
    bool ended = false;
  };
  struct Sample {
    SteadyTime at;
    int64_t step = 0;
  };

  bool Counts(const Rank& rank) const { return rank.last && !rank.ended; }
  bool Exists(int32_t local_rank) const { return local_rank >= 0 && static_cast<size_t>(local_rank) < ranks_.size(); }
  std::string SpeedText(SteadyTime now) const;
  std::string SlowestText(SteadyTime now) const;

  int32_t base_rank_ = 0;
  int32_t restarts_ = 0;
  std::vector<Rank> ranks_;     // by local rank
  std::deque<Sample> samples_;  // times at which furthest_ was reached
  int64_t furthest_ = -1;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROGRESS_PROGRESS_SUMMARY_H_
