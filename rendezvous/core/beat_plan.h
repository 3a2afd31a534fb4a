#ifndef DDPRUN_RENDEZVOUS_CORE_BEAT_PLAN_H_
#define DDPRUN_RENDEZVOUS_CORE_BEAT_PLAN_H_

#include <cstdint>

#include "absl/time/time.h"
#include "rendezvous/core/messages.h"

// PURE: how often the launchers of a job send heartbeats, and how long they may be silent (protocol 4.7). Beats of a
// large job come less often, so that a server is not kept busy by beats alone; all that depends on their interval is
// stretched with them, so that a node's lease and the server's fence keep their proportions (protocol 4.5).
namespace ddprun::rendezvous {

inline constexpr int kBeatsPerTimeout = 6;
// Beats of one job in a second, up to kLongestInterval.
inline constexpr int kMostBeatsPerSecond = 500;
inline constexpr absl::Duration kLongestInterval = absl::Seconds(10);
// Without workers nothing has to be fenced, and a host that vanished only costs a round.
inline constexpr absl::Duration kIdleTimeout = absl::Seconds(30);

// The heartbeat timeout of a job with so many nodes: what was asked for, or longer.
absl::Duration StretchedTimeout(absl::Duration heartbeat_timeout, int64_t nodes);

// The longest one that any server gives a node of this job, whatever the number of nodes is when it joins.
absl::Duration LongestTimeout(const JobSettings& settings);

// For how long a node without workers may be silent.
absl::Duration IdleTimeout(absl::Duration heartbeat_timeout);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_BEAT_PLAN_H_
