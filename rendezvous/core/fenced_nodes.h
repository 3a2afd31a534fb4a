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

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_FENCED_NODES_H_
