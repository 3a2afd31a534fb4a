#include "rendezvous/base/steady_time.h"

#include <ctime>

namespace ddprun {

SteadyTime SteadyNow() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return SteadyTime::FromStart(absl::DurationFromTimespec(now));
}

}  // namespace ddprun
