#ifndef DDPRUN_RENDEZVOUS_CORE_FENCED_NODES_H_
#define DDPRUN_RENDEZVOUS_CORE_FENCED_NODES_H_

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "base/steady_time.h"
#include "rendezvous/core/job_record.h"

namespace ddprun::rendezvous {

// For how long after it was last heard a silent node may have workers.
inline absl::Duration FenceTime(absl::Duration heartbeat_timeout) { return heartbeat_timeout * 7 / 6; }

// PURE: nodes that a job has lost, but whose workers may still run: until when at the latest. No round begins before
// (protocol 4.5). Thread-compatible. Value type.
class FencedNodes {
 public:
  // Workers of this node, whose last stream had this incarnation, are gone at `gone`. Replaces what was known of it.
  // `session`: digest of its session secret.
  void Add(const std::string& node_id, uint64_t incarnation, SteadyTime gone, std::string session = "");

  // The digest of the node's session secret; nullptr: no such node is known here.
  const std::string* FindSession(absl::string_view node_id) const;

  // The node reports that its workers still run: they are gone at `gone`. Returns true if the node was known here.
  bool StillThere(const std::string& node_id, uint64_t incarnation, SteadyTime gone);

  // If this was the launcher's last stream, its process has ended, and its workers with it. True if it was known here.
  bool StreamClosed(absl::string_view node_id, uint64_t incarnation);

  // True if the node's last stream had this incarnation or a higher one.
  bool IsOvertaken(absl::string_view node_id, uint64_t incarnation) const;

  // The node has joined again and reports the state of its workers.
  void CameBack(absl::string_view node_id);

  // Adds or drops the unknown nodes of an earlier server.
  void AddUnknown(SteadyTime gone) { unknown_gone_ = gone; }
  void DropUnknown() { unknown_gone_ = SteadyTime::InfinitePast(); }

  SteadyTime unknown_gone() const { return unknown_gone_; }

  // The known nodes that may have workers at `now`, by node id.
  std::vector<FencedNodeRecord> Record(SteadyTime now) const;

  // From when on none of them has workers, if nothing more is heard; the infinite past if there are none.
  SteadyTime AllGone() const;

 private:
  struct Entry {
    uint64_t incarnation = 0;
    SteadyTime gone;
    std::string session;
  };

  absl::flat_hash_map<std::string, Entry> nodes_;
  std::set<std::pair<absl::Duration, std::string>> by_time_;  // of the same, since the clock's start
  SteadyTime unknown_gone_ = SteadyTime::InfinitePast();
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_FENCED_NODES_H_
