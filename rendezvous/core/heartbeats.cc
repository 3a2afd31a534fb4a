#include "rendezvous/core/heartbeats.h"

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

void Lateness::OnTurn(SteadyTime due, SteadyTime now) {
  if (now <= due + kTolerance) return;
  excused_until_ = std::max(excused_until_, now + std::min(now - due, kMost));
}

void Lateness::OnBeat(absl::Duration gap, absl::Duration interval) {
  // Half an interval of delay is normal. The upper bound keeps one very late node from excusing all others.
  const absl::Duration late = std::clamp(gap - interval * 3 / 2, absl::ZeroDuration(), kMost);
  beats_late_ += (late - beats_late_) / kBeatsAveraged;
}

// Returns twice the average, because single heartbeats arrive later than the average.
absl::Duration Lateness::Allowance() const { return std::min(2 * beats_late_, kMost); }

}  // namespace ddprun::rendezvous
