#ifndef DDPRUN_LAUNCHER_PROGRESS_PROGRESS_H_
#define DDPRUN_LAUNCHER_PROGRESS_PROGRESS_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "base/steady_time.h"
#include "launcher/workers/link_peer.h"
#include "rendezvous/core/messages.h"

// PURE. The training progress of this node's workers. ProgressBoard has the last report of each; the others read it:
// ProgressReports for the server, ProgressSummary for people. Thread-compatible.
namespace ddprun::launcher {

// The progress of this node's workers in the current round.
class ProgressBoard {
 public:
  struct Rank {
    std::optional<ReportedProgress> last;  // unset: no report in this round
    std::optional<double> loss;            // the last one reported; most reports have none
    SteadyTime moved;                      // time at which the rank entered its step and phase
    bool ended = false;
    int64_t reports = 0;  // number of reports in this round
    int64_t losses = 0;   // number of them with a loss
  };
  // A step that no rank had reached before.
  struct Reached {
    SteadyTime at;
    int64_t step = 0;
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
  const std::vector<Rank>& ranks() const { return ranks_; }  // indexed by local rank
  int64_t reports() const { return reports_; }               // number of reports of all ranks in this round
  int64_t furthest_step() const { return furthest_step_; }   // -1: no report in this round
  // Steps of about the last ten seconds, at intervals of at least 200 ms, and at least the last three.
  const std::deque<Reached>& reached() const { return reached_; }

 private:
  bool Exists(int32_t local_rank) const { return local_rank >= 0 && static_cast<size_t>(local_rank) < ranks_.size(); }

  uint64_t round_ = 0;
  int32_t base_rank_ = 0;
  int32_t restart_count_ = 0;
  bool other_nodes_ = false;
  std::vector<Rank> ranks_;
  int64_t reports_ = 0;
  int64_t furthest_step_ = -1;
  std::deque<Reached> reached_;
};

// Summarizes the progress in one line (docs/worker_protocol.md 3.2):
//
//   step 120, 4.21 steps/s, loss 2.312, phase backward; slowest rank 3 (step 118, forward for 2.3s); 1 restart
//
// Step, loss and phase are those of the first local rank that has reported them; the speed is that of the last ten
// seconds. The slowest rank is shown if it is a step behind or has not moved for a second. Empty if no running worker
// has reported anything in this round.
std::string ProgressSummary(const ProgressBoard& board, SteadyTime now);

// The progress messages for the server: the latest report of each rank that the server does not have, at most one
// message per rendezvous::kProgressInterval.
class ProgressReports {
 public:
  explicit ProgressReports(const ProgressBoard* board) : board_(board) {}

  // Time from which Take returns a message.
  SteadyTime NextDeadline() const;
  // Returns the message to send now, if any.
  std::optional<rendezvous::Progress> Take(SteadyTime now);

 private:
  // Values of ProgressBoard::Rank when the rank's last report was sent.
  struct Sent {
    int64_t reports = 0;
    int64_t losses = 0;
  };

  const ProgressBoard* const board_;
  uint64_t round_ = 0;        // round of `sent_`
  std::vector<Sent> sent_;    // indexed by local rank
  int64_t sent_reports_ = 0;  // sum of Sent::reports
  SteadyTime not_before_ = SteadyTime::InfinitePast();
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROGRESS_PROGRESS_H_
