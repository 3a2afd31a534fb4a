#include "rendezvous/core/beat_plan.h"

#include <algorithm>

namespace ddprun::rendezvous {

absl::Duration StretchedTimeout(absl::Duration heartbeat_timeout, int64_t nodes) {
  const absl::Duration interval = std::min(absl::Seconds(nodes) / kMostBeatsPerSecond, kLongestInterval);
  return std::max(heartbeat_timeout, kBeatsPerTimeout * interval);
}

absl::Duration LongestTimeout(const JobSettings& settings) {
  return StretchedTimeout(ToDuration(settings.heartbeat_timeout()), settings.max_nodes());
}

absl::Duration IdleTimeout(absl::Duration heartbeat_timeout) {
  return std::max(heartbeat_timeout, std::min(10 * heartbeat_timeout, kIdleTimeout));
}

}  // namespace ddprun::rendezvous
