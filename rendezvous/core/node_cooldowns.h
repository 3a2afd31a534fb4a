#ifndef DDPRUN_RENDEZVOUS_CORE_NODE_COOLDOWNS_H_
#define DDPRUN_RENDEZVOUS_CORE_NODE_COOLDOWNS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/steady_time.h"
#include "rendezvous/core/job_record.h"

namespace ddprun::rendezvous {

// PURE: the cooldowns of one job (protocol 3.9): nodes whose workers fail repeatedly, or are stuck in the kernel, are
// left out of rounds for a while. A cooldown is active until Expire is called at its end or later. Thread-compatible.
class NodeCooldowns {
 public:
  // Number of consecutive first causes on one node after which its cooldown begins.
  static constexpr int32_t kRoundsInARow = 3;
  static constexpr absl::Duration kLongest = absl::Minutes(10);  // maximum length, unless `first` is longer
  // Number of nodes that are remembered; beyond it, the node whose first cooldown began earliest is forgotten.
  static constexpr size_t kMaxNodes = 256;

  // `first`: length of a node's first cooldown; each further one is twice as long. Zero: no node gets a cooldown.
  explicit NodeCooldowns(absl::Duration first) : first_(first) {}
  // Restores the cooldowns of a record.
  NodeCooldowns(absl::Duration first, const JobRecord& record, SteadyTime now);

  // Reports that a worker of this node was the first cause of a round's end. Begins, or restarts, the node's cooldown
  // from the kRoundsInARow-th consecutive first cause on.
  void OnFirstCause(absl::string_view node_id, SteadyTime now);

  // Reports that a worker of this node is stuck in the kernel. Begins, or restarts, the node's cooldown at once.
  void OnStuckWorker(absl::string_view node_id, SteadyTime now);

  // Ends the cooldowns that are over at `now`. Returns true if there were any.
  bool Expire(SteadyTime now);
  // Returns the end of the earliest cooldown, or infinite.
  SteadyTime NextEnd() const;

  bool any() const { return active_ > 0; }
  bool IsActive(absl::string_view node_id) const;
  // Returns the ids of nodes with an active cooldown, earliest end first.
  std::vector<std::string> Nodes() const;
  // True if the node's latest cooldown began because a worker is stuck in the kernel. Not recorded.
  bool IsForStuckWorker(absl::string_view node_id) const;
  // Returns the total length of this node's latest cooldown; zero if it had none.
  absl::Duration Length(absl::string_view node_id) const;

  // Fills in the fields of the record about cooldowns.
  void Record(SteadyTime now, JobRecord* record) const;

 private:
  struct Entry {
    std::string node_id;
    int32_t times = 0;
    std::optional<SteadyTime> until;
    bool stuck = false;
  };

  const Entry* Find(absl::string_view node_id) const;
  Entry* FindOrAdd(absl::string_view node_id);
  void Begin(Entry* entry, SteadyTime now);
  absl::Duration LengthAfter(int32_t times) const;

  absl::Duration first_;
  std::vector<Entry> entries_;
  size_t active_ = 0;
  std::string failing_node_;
  int32_t in_a_row_ = 0;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_NODE_COOLDOWNS_H_
