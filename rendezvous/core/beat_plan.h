#ifndef DDPRUN_RENDEZVOUS_CORE_BEAT_PLAN_H_
#define DDPRUN_RENDEZVOUS_CORE_BEAT_PLAN_H_

#include <cstdint>

#include "absl/time/time.h"
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

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_BEAT_PLAN_H_
