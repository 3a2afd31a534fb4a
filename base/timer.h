#ifndef DDPRUN_BASE_TIMER_H_
#define DDPRUN_BASE_TIMER_H_

#include <optional>

#include "base/steady_time.h"

namespace ddprun {

// An optional deadline for pure code, which receives the time as a parameter. Thread-compatible value type.
class Timer {
 public:
  // An infinite time is the same as Clear.
  void Set(SteadyTime at) {
    if (at == SteadyTime::InfiniteFuture()) {
      at_.reset();
    } else {
      at_ = at;
    }
  }
  void Clear() { at_.reset(); }

  bool running() const { return at_.has_value(); }
  // Infinite if the timer is not running.
  SteadyTime at() const { return at_.value_or(SteadyTime::InfiniteFuture()); }
  bool IsDue(SteadyTime now) const { return at_ && *at_ <= now; }
  // Stops the timer and returns true if it is due.
  bool Take(SteadyTime now) {
    if (!IsDue(now)) return false;
    at_.reset();
    return true;
  }

 private:
  std::optional<SteadyTime> at_;
};

}  // namespace ddprun

#endif  // DDPRUN_BASE_TIMER_H_
