#ifndef DDPRUN_RENDEZVOUS_CORE_FENCE_H_
#define DDPRUN_RENDEZVOUS_CORE_FENCE_H_

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "base/steady_time.h"
#include "rendezvous/core/heartbeats.h"
#include "rendezvous/core/job_record.h"
#include "rendezvous/core/membership.h"
#include "rendezvous/core/messages.h"

namespace ddprun::rendezvous {

// Returns how long after its last message a silent node may have workers: 7/6 of the timeout (protocol 4.5).
inline absl::Duration FenceTime(absl::Duration heartbeat_timeout) { return heartbeat_timeout * 7 / 6; }

// PURE: nodes that are not in a job any more, but whose workers may still run, each with the time by which they have
// ended: the fence of protocol 4.5, which Fence maintains. Unknown nodes of earlier servers count as one entry.
// Thread-compatible. Value type.
class FencedNodes {
 public:
  // Adds a node, or replaces it. `incarnation`: that of its last stream. `gone`: when its workers are gone at the
  // latest; infinite if only the end of the stream will show. `session`: digest of its session secret.
  void Add(const std::string& node_id, uint64_t incarnation, SteadyTime gone, std::string session = "");

  // Returns the digest of the node's session secret; nullptr: no such node is here.
  const std::string* FindSession(absl::string_view node_id) const;

  // Postpones the node's time to `gone`, because it sent a heartbeat. Returns true if the node is here.
  bool StillThere(const std::string& node_id, uint64_t incarnation, SteadyTime gone);

  // Reports the end of a stream. If it was the node's last one, its launcher and workers have ended; removes the node
  // and returns true.
  bool StreamClosed(absl::string_view node_id, uint64_t incarnation);

  // True if the node is here, and its last stream had this incarnation or a higher one.
  bool IsOvertaken(absl::string_view node_id, uint64_t incarnation) const;

  // Removes a node that joined again and thereby reported the state of its workers.
  void CameBack(absl::string_view node_id);

  // Adds or removes unknown nodes of earlier servers. `gone`: when their workers are gone at the latest.
  void AddUnknown(SteadyTime gone) { unknown_gone_ = gone; }
  void DropUnknown() { unknown_gone_ = SteadyTime::InfinitePast(); }

  SteadyTime unknown_gone() const { return unknown_gone_; }

  // Returns the known nodes that may have workers at `now`, sorted by node id.
  std::vector<FencedNodeRecord> Record(SteadyTime now) const;

  // Returns when all workers are gone, if nothing more is reported; the infinite past if there are no nodes.
  SteadyTime AllGone() const;

 private:
  struct Entry {
    uint64_t incarnation = 0;
    SteadyTime gone;
    std::string session;
  };

  absl::flat_hash_map<std::string, Entry> nodes_;
  std::set<std::pair<absl::Duration, std::string>> by_time_;  // (Entry::gone as time since the clock's start, node id)
  SteadyTime unknown_gone_ = SteadyTime::InfinitePast();
};

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
