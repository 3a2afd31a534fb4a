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

// PURE: the fence of one job (protocol 4.5): when all workers of nodes that are gone have ended, so that a round may
// start. Job reports how nodes leave and return; OpensAt() says when the fence opens. The nodes are kept in
// FencedNodes. Reasons are in docs/design/0003-fencing.md. Thread-compatible.
class Fence {
 public:
  // Workers of launchers of an earlier server that have not contacted this one are gone this many heartbeat timeouts
  // after this server began: 11/12 until their launcher kills them, the rest for the time that a server takes until it
  // listens.
  static constexpr double kUnknownHeartbeats = 1.5;
  static absl::Duration UnknownTime(const JobSettings& settings) {
    return LongestTimeout(settings) * kUnknownHeartbeats;
  }
  static SteadyTime UnknownGone(const JobSettings& settings, SteadyTime server_began) {
    return server_began + UnknownTime(settings);
  }

  // `inherited`: nodes of the previous job of this id, or of an earlier server, that may still have workers. `all`:
  // apart from nodes that are expected to report, no others may have workers.
  Fence(const JobSettings& settings, SteadyTime server_began, FencedNodes inherited, bool all);

  // Returns the digest of the session secret of a node that is gone but may have workers; nullptr: it is not such a
  // node.
  const std::string* FindSession(absl::string_view node_id) const { return gone_.FindSession(node_id); }

  // True if the Join is outdated: its node is gone, and joined with the same or a higher incarnation before.
  bool IsOvertaken(const Join& join) const { return gone_.IsOvertaken(join.node_id(), join.incarnation()); }
  // Reports that a node joined: from now on Membership knows the state of its workers. REQUIRES: !IsOvertaken(join).
  void OnJoin(const Join& join);
  // Reports that a node has workers of the adopted round: no later one can have been assigned, so no unknown node has
  // workers.
  void LatestRoundRuns() { gone_.DropUnknown(); }
  // Reports that an earlier server had nodes of this job.
  void OnRestored() { has_veterans_ = true; }
  // Reports that max nodes are in touch: they are the whole last round, so no unknown node has workers (protocol 4.5).
  void LastRoundIsThere() { gone_.DropUnknown(); }
  // Reports that max nodes have joined. If none of them has joined a server before, no unknown node has workers.
  void Complete();
  // Reports that a node named a round that is unknown to this server and its records: unknown nodes may have workers.
  void OnUnknownRound() { gone_.AddUnknown(unknown_gone_); }

  // Report that a node that may have workers left, was lost because of silence, or was present when the job ended.
  void OnLeft(const Node& node, SteadyTime now);
  void OnSilent(const Node& node);
  void OnJobEnd(const Node& node, SteadyTime now);

  // Reports that the launcher of this Join is sent a verdict of a job that has ended for it, so that it now stops its
  // workers. REQUIRES: !IsOvertaken(join).
  void OnToldEnd(const Join& join, SteadyTime now) { AddTold(join, longest_timeout_, now, &gone_); }
  // Does the same for a job without a Fence, whose fenced nodes are `nodes`. `longest_timeout`: LongestTimeout of that
  // job.
  static void AddTold(const Join& join, absl::Duration longest_timeout, SteadyTime now, FencedNodes* nodes);

  // Reports a heartbeat of a node that is not in the job. Returns true if the node may still have workers, so that the
  // heartbeat must be answered.
  bool OnHeartbeat(const std::string& node_id, uint64_t incarnation, SteadyTime now);
  // Reports the end of a stream. Returns true if it was the stream of a fenced node: its workers are gone now.
  bool OnStreamClosed(absl::string_view node_id, uint64_t incarnation) {
    return gone_.StreamClosed(node_id, incarnation);
  }

  // Returns when a round may start, if no further event is reported; the infinite past if it may start now.
  SteadyTime OpensAt() const { return gone_.AllGone(); }
  // True if unknown nodes of an earlier server, and not known ones, determine OpensAt().
  bool AwaitsUnknown() const { return gone_.unknown_gone() == gone_.AllGone(); }

  const FencedNodes& nodes() const { return gone_; }

 private:
  // Returns when the workers of a silent node that was last heard from at `heard` are gone.
  SteadyTime WorkersGone(const Node& node, SteadyTime heard) const;

  const absl::Duration longest_timeout_;  // longest heartbeat timeout of any node of the job
  const absl::Duration reconnect_grace_;
  const SteadyTime unknown_gone_;
  FencedNodes gone_;
  bool has_veterans_ = false;  // true if a node of the job has joined any server before
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_FENCE_H_
