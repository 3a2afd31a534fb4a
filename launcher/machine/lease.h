#ifndef DDPRUN_LAUNCHER_MACHINE_LEASE_H_
#define DDPRUN_LAUNCHER_MACHINE_LEASE_H_

#include <deque>

#include "absl/time/time.h"
#include "base/steady_time.h"

namespace ddprun::launcher {

// PURE: computes how long this node's workers may run without hearing from the server (protocol 4.5). The server starts
// no round for the other nodes until 7/6 of the heartbeat timeout H after it last heard from this node. Workers that
// are gone 11/12 H after the last moment at which the server certainly counted this node can therefore never meet
// workers of a later round.
//
// The send time of a request that the server answered is such a moment. So is the start of a connection attempt that
// was refused: then no server is running that could start a round, and a new server waits three heartbeat timeouts for
// known nodes to report. But a firewall may refuse connections as well, so a refusal counts only if the server's own
// host ended the stream; after a silence only an answer renews the lease.
//
// Thread-compatible.
class Lease {
 public:
  explicit Lease(absl::Duration heartbeat_timeout) : timeout_(heartbeat_timeout) {}

  // Sets the heartbeat timeout that the server uses from now on.
  void SetTimeout(absl::Duration heartbeat_timeout) { timeout_ = heartbeat_timeout; }
  absl::Duration timeout() const { return timeout_; }

  // A request was sent on the current stream. The server answers requests in order.
  void Asked(SteadyTime now) { asked_.push_back(now); }
  // The oldest outstanding request was answered. Ignored if there is none.
  void Answered(SteadyTime now);

  // The current stream has ended: `silent` if the launcher abandoned it because the server was silent, else closed
  // remotely.
  void StreamOver(bool silent);
  // A connection attempt to the server's address, started at `began`, was refused.
  void Refused(SteadyTime began, SteadyTime now);
  // The server runs in this process, so the lease never expires.
  void Unlimited() { since_ = SteadyTime::InfiniteFuture(); }

  // The node was assigned to a round and currently counts.
  void OnRound() { in_touch_ = true; }
  // A round started without the node, or may have.
  void Missed() { in_touch_ = false; }
  // True if the node has counted at every moment since OnRound, so that no round started without it (protocol 4.5).
  bool InTouch(SteadyTime now) const { return in_touch_ && now < StopAt(); }

  // The latest moment at which the server certainly counted this node.
  SteadyTime since() const { return since_; }
  // StopAt: workers are asked to stop. KillAt: they are killed. SilentAt: the stream of a node with workers is reset if
  // nothing was received from the server since `heard`.
  SteadyTime StopAt() const { return since_ + timeout_ * 5 / 6; }
  SteadyTime KillAt() const { return since_ + timeout_ * 11 / 12; }
  SteadyTime SilentAt(SteadyTime heard) const { return heard + timeout_ / 2; }

 private:
  absl::Duration timeout_;
  SteadyTime since_ = SteadyTime::InfinitePast();
  std::deque<SteadyTime> asked_;
  bool refusals_count_ = false;
  bool in_touch_ = false;  // as of since_
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_MACHINE_LEASE_H_
