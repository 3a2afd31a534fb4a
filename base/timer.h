#ifndef DDPRUN_BASE_TIMER_H_
#define DDPRUN_BASE_TIMER_H_

#include <optional>

#include "base/steady_time.h"

namespace ddprun {

// A moment at which something is due, or none. For pure code, which is told what time it is. Thread-compatible value.
class Timer {
 public:
  // Infinite: as Clear.
  void Set(SteadyTime at) {
    if (at == SteadyTime::InfiniteFuture()) {
      at_.reset();
    } else {
      at_ = at;
    }
  }
  void Clear() { at_.reset(); }

  bool running() const { return at_.has_value(); }
  // Infinite if the timer does not run.
  SteadyTime at() const { return at_.value_or(SteadyTime::InfiniteFuture()); }
  bool IsDue(SteadyTime now) const { return at_ && *at_ <= now; }
  // Whether it is due; then it runs no more.
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
