#ifndef DDPRUN_RENDEZVOUS_CORE_RECOVERY_H_
#define DDPRUN_RENDEZVOUS_CORE_RECOVERY_H_

#include <cstdint>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "base/steady_time.h"
#include "rendezvous/core/beat_plan.h"
#include "rendezvous/core/messages.h"

namespace ddprun::rendezvous {

// PURE: which nodes of a running round have reported to a server that was restarted, and what is known of the round's
// future meanwhile (protocol 4.4). Means something while the job is recovering. Thread-compatible.
class Recovery {
 public:
  // Nodes have this many of the longest heartbeat timeouts and the reconnect grace to report.
  static constexpr int kHeartbeats = 3;

  // The first node has reported, or the server begins with the record of a job.
  void Begin(const JobSettings& settings, SteadyTime now) {
    until_ = now + kHeartbeats * LongestTimeout(settings) + ToDuration(settings.reconnect_grace());
  }
  // The round had been left before the server was restarted, as its record says.
  void BeginLeft() { leaving_ = left_before_ = true; }
  SteadyTime until() const { return until_; }

  // A higher round than before is taken up: what was reported of the one before does not count.
  void StartOver() {
    reported_.clear();
    gone_.clear();
    owing_.clear();
    leaving_ = failed_ = left_before_ = false;
  }

  // The node of this place in the round is gone, as the record says, or is certain: it is not waited for.
  // REQUIRES: it has not reported.
  void Gone(int32_t group_rank) { gone_.insert(group_rank); }
  bool HasReported(int32_t group_rank) const { return reported_.contains(group_rank); }

  // The node of this place in the round has reported. False: another node has said the same of itself.
  bool Report(int32_t group_rank) {
    anybody_ = true;
    gone_.erase(group_rank);
    return reported_.insert(group_rank).second;
  }
  // True if a node has reported, even if it is gone again.
  bool anybody() const { return anybody_; }
  // It is gone, or reports anew.
  void Forget(int32_t group_rank) {
    reported_.erase(group_rank);
    owing_.erase(group_rank);
  }
  int32_t reported() const { return static_cast<int32_t>(reported_.size()); }
  // Nodes of the round that have reported or are known to be gone.
  int32_t accounted_for() const { return static_cast<int32_t>(reported_.size() + gone_.size()); }

  // The round can't go on; it remains to be seen who is there.
  void Leave() { leaving_ = true; }
  bool leaving() const { return leaving_; }
  // True if the round was left before the restart: failures that workers report now followed from that.
  bool left_before() const { return left_before_; }

  // The node of this place said that its workers stop: the failure that they stop for follows, or its Ready, which
  // has come.
  void ExpectCause(int32_t group_rank) { owing_.insert(group_rank); }
  void CauseReceived(int32_t group_rank) { owing_.erase(group_rank); }
  // Why the round can't go on may still be told.
  bool awaits_cause() const { return leaving_ && !left_before_ && !owing_.empty(); }

  // A worker failed. False: another one did before, which counts: this only followed from that.
  bool Fail() { return !std::exchange(failed_, true); }

 private:
  SteadyTime until_;
  absl::flat_hash_set<int32_t> reported_;  // group ranks
  absl::flat_hash_set<int32_t> gone_;      // the same
  absl::flat_hash_set<int32_t> owing_;     // the same
  bool anybody_ = false;
  bool leaving_ = false;
  bool failed_ = false;
  bool left_before_ = false;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_RECOVERY_H_
