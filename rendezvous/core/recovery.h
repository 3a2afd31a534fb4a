#ifndef DDPRUN_RENDEZVOUS_CORE_RECOVERY_H_
#define DDPRUN_RENDEZVOUS_CORE_RECOVERY_H_

#include <cstdint>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "base/steady_time.h"
#include "rendezvous/core/heartbeats.h"
#include "rendezvous/core/messages.h"

namespace ddprun::rendezvous {

// PURE: the progress of a recovery (protocol 4.4): which nodes of an earlier server's round have reported, and if the
// round has to be stopped once they have. Used only in JobState::kRecovering. Nodes are named by their group rank in
// that round. Thread-compatible.
class Recovery {
 public:
  // Nodes have to report within kHeartbeats * LongestTimeout(settings), plus the reconnect grace.
  static constexpr int kHeartbeats = 3;

  // Begins the recovery: the first node has reported, or the server has started with a record of the job.
  void Begin(const JobSettings& settings, SteadyTime now) {
    until_ = now + kHeartbeats * LongestTimeout(settings) + ToDuration(settings.reconnect_grace());
  }
  // The record says that the round was stopped before the restart.
  void BeginLeft() { leaving_ = left_before_ = true; }
  // Deadline of the reports.
  SteadyTime until() const { return until_; }

  // Discards all reports, because a node reported a higher round, which the job adopts.
  void StartOver() {
    reported_.clear();
    gone_.clear();
    causes_expected_.clear();
    leaving_ = failed_ = left_before_ = false;
  }

  // Marks a node as gone, so that the recovery does not wait for its report. REQUIRES: !HasReported(group_rank).
  void Gone(int32_t group_rank) { gone_.insert(group_rank); }
  bool HasReported(int32_t group_rank) const { return reported_.contains(group_rank); }

  // Marks a node as having reported. Returns false if another node has already reported this group rank.
  bool Report(int32_t group_rank) {
    anybody_ = true;
    gone_.erase(group_rank);
    return reported_.insert(group_rank).second;
  }
  // True if any node has reported since the recovery began, even if it is gone again.
  bool anybody() const { return anybody_; }
  // Discards the report of a node, which is gone or joins again.
  void Forget(int32_t group_rank) {
    reported_.erase(group_rank);
    causes_expected_.erase(group_rank);
  }
  int32_t reported() const { return static_cast<int32_t>(reported_.size()); }
  // Number of nodes that have reported or are known to be gone.
  int32_t accounted_for() const { return static_cast<int32_t>(reported_.size() + gone_.size()); }

  // Marks the round as stopped: when all nodes have reported, the next round follows.
  void Leave() { leaving_ = true; }
  bool leaving() const { return leaving_; }
  // True if the round was stopped before the restart, so that failures reported now are consequences.
  bool left_before() const { return left_before_; }

  // A node whose workers are stopping will send the failure that caused it, or Ready. ExpectCause marks it as expected,
  // CauseReceived as received.
  void ExpectCause(int32_t group_rank) { causes_expected_.insert(group_rank); }
  void CauseReceived(int32_t group_rank) { causes_expected_.erase(group_rank); }
  // True if the round is stopped, and an expected WorkerFailed or Ready is missing, which may name the first cause.
  bool awaits_cause() const { return leaving_ && !left_before_ && !causes_expected_.empty(); }

  // Reports that a worker failed. Returns true for the first failure, which is the cause; later ones are consequences.
  bool Fail() { return !std::exchange(failed_, true); }

 private:
  SteadyTime until_;
  absl::flat_hash_set<int32_t> reported_;         // group ranks that have reported
  absl::flat_hash_set<int32_t> gone_;             // group ranks known to be gone
  absl::flat_hash_set<int32_t> causes_expected_;  // group ranks whose cause is expected
  bool anybody_ = false;
  bool leaving_ = false;
  bool failed_ = false;
  bool left_before_ = false;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_RECOVERY_H_
