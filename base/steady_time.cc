#include "base/steady_time.h"

#include <ctime>

#include "absl/time/clock.h"

namespace ddprun {

SteadyTime SteadyNow() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return SteadyTime::FromStart(absl::DurationFromTimespec(now));
}

absl::Time WallTimeAtStart() { return absl::Now() - SteadyNow().since_start(); }

std::string UtcText(absl::Time time) { return absl::FormatTime("%Y-%m-%d%ET%H:%M:%E3SZ", time, absl::UTCTimeZone()); }

}  // namespace ddprun
