#ifndef DDPRUN_RENDEZVOUS_CORE_FENCE_H_
#define DDPRUN_RENDEZVOUS_CORE_FENCE_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "base/steady_time.h"
#include "rendezvous/core/beat_plan.h"
#include "rendezvous/core/fenced_nodes.h"
#include "rendezvous/core/membership.h"
#include "rendezvous/core/messages.h"

namespace ddprun::rendezvous {

// PURE: when the workers of nodes that are gone are gone as well, so that a round may begin (protocol 4.5; the reasons
// are in docs/design/0003-fencing.md). Thread-compatible.
class Fence {
 public:
  // Of launchers that look for another server than this one, workers are gone so many heartbeat timeouts after it
  // began: 11/12 after it was last refused, and something for the time that a server takes until it listens.
  static constexpr double kUnknownHeartbeats = 1.5;
  static absl::Duration UnknownTime(const JobSettings& settings) {
    return LongestTimeout(settings) * kUnknownHeartbeats;
  }
  static SteadyTime UnknownGone(const JobSettings& settings, SteadyTime server_began) {
    return server_began + UnknownTime(settings);
  }

  // `inherited`: nodes that may still have workers since before this job, or before this server. `all`: they are all
  // that there are, but for those that are expected to report.
  Fence(const JobSettings& settings, SteadyTime server_began, FencedNodes inherited, bool all);

  // The digest of the session secret of a node that may have workers; nullptr: no such node is known here.
  const std::string* FindSession(absl::string_view node_id) const { return gone_.FindSession(node_id); }

  // The Join is late: its node has joined with a higher incarnation since, and is gone. It says nothing of its workers.
  bool IsOvertaken(const Join& join) const { return gone_.IsOvertaken(join.node_id(), join.incarnation()); }
  // The node of this Join has joined and reports the state of its workers. REQUIRES: !IsOvertaken(join).
  void OnJoin(const Join& join);
  // Workers of the latest round run: no later round can have been assigned, and no unknown node has workers.
  void LatestRoundRuns() { gone_.DropUnknown(); }
  // The job is one of a server before this one.
  void OnRestored() { has_veterans_ = true; }
  // All nodes are there that the last round can have had (protocol 4.5).
  void LastRoundIsThere() { gone_.DropUnknown(); }
  // All nodes that there can be are there.
  void Complete();
  // A round is heard of that neither this server gave out nor its records name.
  void OnUnknownRound() { gone_.AddUnknown(unknown_gone_); }

  // A node that may have workers has left at `now`.
  void OnLeft(const Node& node, SteadyTime now);
  // A node that may have workers was lost because nothing was heard from it.
  void OnSilent(const Node& node);
  // The job has ended, with this node that may have workers.
  void OnJobEnd(const Node& node, SteadyTime now);

  // The launcher of this Join receives the end of its job, an earlier one of the same id, and stops its workers if it
  // has any. REQUIRES: !IsOvertaken(join).
  void OnToldEnd(const Join& join, SteadyTime now) { AddTold(join, longest_timeout_, now, &gone_); }
  // Does this for `nodes` of an ended job whose longest heartbeat timeout is `longest_timeout`.
  static void AddTold(const Join& join, absl::Duration longest_timeout, SteadyTime now, FencedNodes* nodes);

  // A heartbeat of a node that is gone. True if the node may still have workers; then the heartbeat is answered.
  bool OnHeartbeat(const std::string& node_id, uint64_t incarnation, SteadyTime now);
  // A stream ended. True if it was the stream of a node that is gone, whose workers are gone now.
  bool OnStreamClosed(absl::string_view node_id, uint64_t incarnation) {
    return gone_.StreamClosed(node_id, incarnation);
  }

  // From when on a round may begin, if nothing more is heard.
  SteadyTime OpensAt() const { return gone_.AllGone(); }
  // True if unknown nodes of an earlier server are the reason that no round may begin until then.
  bool AwaitsUnknown() const { return gone_.unknown_gone() == gone_.AllGone(); }

  const FencedNodes& nodes() const { return gone_; }

 private:
  // When a silent node that was last heard then has no workers any more.
  SteadyTime WorkersGone(const Node& node, SteadyTime heard) const;

  const absl::Duration longest_timeout_;  // of all nodes of the job
  const absl::Duration reconnect_grace_;
  const SteadyTime unknown_gone_;
  FencedNodes gone_;
  bool has_veterans_ = false;  // some node has been with a server before, this one or another
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_FENCE_H_
