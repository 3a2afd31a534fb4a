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

// PURE: which nodes are to be left out of the next rounds of one job because their workers fail again and again
// (protocol 3.9). A cooldown lasts until Expire is called at its end or later. Thread-compatible.
class NodeCooldowns {
 public:
  // First causes in a row, all on one node, after which its cooldown begins.
  static constexpr int32_t kRoundsInARow = 3;
  static constexpr absl::Duration kLongest = absl::Minutes(10);  // unless the first one is longer
  // Nodes that are remembered. With more, the one whose first cooldown is the oldest is forgotten.
  static constexpr size_t kMaxNodes = 256;

  // `first`: how long the first cooldown of a node lasts; each further one is twice as long. Zero: there are none.
  explicit NodeCooldowns(absl::Duration first) : first_(first) {}
  // As it was recorded.
  NodeCooldowns(absl::Duration first, const JobRecord& record, SteadyTime now);

  // A worker of this node was the first cause of the end of a round. Begins a cooldown if it was so in a row, again
  // with each further one in that row.
  void OnFirstCause(absl::string_view node_id, SteadyTime now);

  // Ends the cooldowns whose time is over. Returns true if there were any.
  bool Expire(SteadyTime now);
  // Of the one that ends next; infinite: none is left.
  SteadyTime NextEnd() const;

  bool any() const { return active_ > 0; }
  bool IsActive(absl::string_view node_id) const;
  // Nodes with a cooldown, in the order in which they end.
  std::vector<std::string> Nodes() const;
  // How long this node's last cooldown lasts, from begin to end. Zero: it had none.
  absl::Duration Length(absl::string_view node_id) const;

  // Fills in the record's part of it.
  void Record(SteadyTime now, JobRecord* record) const;

 private:
  struct Entry {
    std::string node_id;
    int32_t times = 0;
    std::optional<SteadyTime> until;
  };

  Entry* FindOrAdd(absl::string_view node_id);
  absl::Duration LengthAfter(int32_t times) const;

  absl::Duration first_;
  std::vector<Entry> entries_;
  size_t active_ = 0;
  std::string failing_node_;
  int32_t in_a_row_ = 0;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_NODE_COOLDOWNS_H_
