#ifndef DDPRUN_LAUNCHER_MACHINE_LEASE_H_
#define DDPRUN_LAUNCHER_MACHINE_LEASE_H_

#include <cstddef>
#include <deque>

#include "absl/time/time.h"
#include "base/steady_time.h"

namespace ddprun::launcher {

// PURE: how long this node's workers may run without another word from the server (protocol 4.5). The server gives the
// other nodes no new round before 7/6 of the heartbeat timeout H after it has last heard this node; so workers that are
// gone 11/12 H after the last moment of which that is certain never meet those of a later round.
//
// Such a moment is when something was *sent* that the server answered. Another one is when the launcher began to
// connect and was refused: then no server is there that could give out a round, and one that is started later gives
// the nodes of before three heartbeat timeouts to report. But a firewall may refuse as well. So a refusal counts only
// if the server's own host had ended the stream; after a silence nothing but an answer helps.
//
// Thread-compatible.
class Lease {
 public:
  explicit Lease(absl::Duration heartbeat_timeout) : timeout_(heartbeat_timeout) {}

  // By which the server goes from now on.
  void SetTimeout(absl::Duration heartbeat_timeout) { timeout_ = heartbeat_timeout; }
  absl::Duration timeout() const { return timeout_; }

  // Something goes out on the present stream that the server answers in the order in which it came.
  void Asked(SteadyTime now) { asked_.push_back(now); }
  // The oldest of those was answered. Ignored if there is none.
  void Answered(SteadyTime now);

  // The present stream is no more: because the server was silent, or because it was closed from there.
  void StreamOver(bool silent);
  // A connection that was begun at this time was refused where the server was.
  void Refused(SteadyTime began, SteadyTime now);
  // The server is in this process: it can't be lost alone.
  void Unlimited() { since_ = SteadyTime::InfiniteFuture(); }

  // The node was given a round, and counts at present.
  void OnRound() { in_touch_ = true; }
  // A round was given out without the node, or may have been.
  void Missed() { in_touch_ = false; }
  // Whether it has counted at every moment since OnRound, so that no round was given out without it (protocol 4.5).
  bool InTouch(SteadyTime now) const { return in_touch_ && now < StopAt(); }

  // The last moment at which the node is certain to have counted.
  SteadyTime since() const { return since_; }
  // Workers are told to stop; they are killed; the stream of a node with workers is reset if the server has not spoken
  // since `heard`.
  SteadyTime StopAt() const { return since_ + timeout_ * 5 / 6; }
  SteadyTime KillAt() const { return since_ + timeout_ * 11 / 12; }
  SteadyTime SilentAt(SteadyTime heard) const { return heard + timeout_ / 2; }

 private:
  absl::Duration timeout_;
  SteadyTime since_ = SteadyTime::InfinitePast();
  std::deque<SteadyTime> asked_;
  bool refusals_count_ = false;
  bool in_touch_ = false;  // up to since_
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_MACHINE_LEASE_H_
