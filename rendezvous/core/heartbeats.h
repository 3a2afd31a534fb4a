#ifndef DDPRUN_RENDEZVOUS_CORE_HEARTBEATS_H_
#define DDPRUN_RENDEZVOUS_CORE_HEARTBEATS_H_

#include <cstdint>

#include "absl/time/time.h"
#include "base/steady_time.h"
#include "rendezvous/core/messages.h"

// PURE: how often the launchers of a job send heartbeats, and how long they may be silent (protocol 4.7). In a large
// job they send fewer, so that heartbeats alone do not keep a server busy. The heartbeat timeout grows with the
// interval, and lease and fence with the timeout, so that their proportions (protocol 4.5) stay the same.
namespace ddprun::rendezvous {

inline constexpr int kBeatsPerTimeout = 6;
// Maximum number of heartbeats per second of one job; it may be exceeded where kLongestInterval limits the interval.
inline constexpr int kMostBeatsPerSecond = 500;
inline constexpr absl::Duration kLongestInterval = absl::Seconds(10);
// Upper bound on IdleTimeout, unless the heartbeat timeout is longer.
inline constexpr absl::Duration kIdleTimeout = absl::Seconds(30);

// Returns the heartbeat timeout of a job with this many nodes: `heartbeat_timeout`, or longer.
absl::Duration StretchedTimeout(absl::Duration heartbeat_timeout, int64_t nodes);

// Returns the longest heartbeat timeout that any server assigns to a node of this job: that for max nodes.
absl::Duration LongestTimeout(const JobSettings& settings);

// Returns how long a node without workers may be silent. It is longer than the heartbeat timeout, because such a node
// needs no fencing.
absl::Duration IdleTimeout(absl::Duration heartbeat_timeout);

// PURE: measures how late this server is with its own work, so that it does not count a node as silent whose heartbeats
// it has not read yet (protocol 4.7). It uses two signs:
//
//   - The server acts long after a deadline, because its process was stopped or got no CPU. Heartbeats that arrived in
//     the meantime may still be unread, so no node counts as silent until the same delay has passed again.
//   - Heartbeats of most nodes arrive late, which no single node can cause. Each node gets extra time for its next
//     heartbeat, in proportion to the average delay of all heartbeats.
//
// Both only postpone the moment at which a silent node counts as lost. The time after which its workers are certainly
// gone (FenceTime) counts from its last message and is not affected. Thread-compatible.
class Lateness {
 public:
  static constexpr absl::Duration kTolerance = absl::Milliseconds(50);  // normal delay of a timer
  static constexpr absl::Duration kMost = absl::Seconds(30);            // bound on either extra time
  static constexpr int kBeatsAveraged = 32;

  // Reports that the server handles an event at `now`, while its earliest deadline was `due` (in the future if the
  // server is not late).
  void OnTurn(SteadyTime due, SteadyTime now);

  // Reports a heartbeat that arrived `gap` after the node's previous message, where `interval` was planned.
  void OnBeat(absl::Duration gap, absl::Duration interval);

  // Returns the time beyond its heartbeat timeout that a node whose message arrives now has for the next one.
  absl::Duration Allowance() const;

  // No node counts as silent before this time. The value never decreases.
  SteadyTime excused_until() const { return excused_until_; }

 private:
  absl::Duration beats_late_;  // average delay of heartbeats
  SteadyTime excused_until_ = SteadyTime::InfinitePast();
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_HEARTBEATS_H_
