#ifndef DDPRUN_BASE_STEADY_TIME_H_
#define DDPRUN_BASE_STEADY_TIME_H_

#include <optional>
#include <string>

#include "absl/time/time.h"

namespace ddprun {

// A point in time on this process's steady clock (CLOCK_MONOTONIC). A separate type, so that it is never confused with
// wall time (absl::Time) or sent to another process. Pure code receives it as a parameter; only shells call
// SteadyNow(). Thread-compatible value type.
class SteadyTime {
 public:
  constexpr SteadyTime() = default;
  static constexpr SteadyTime FromStart(absl::Duration since_start) { return SteadyTime(since_start); }
  static constexpr SteadyTime InfiniteFuture() { return SteadyTime(absl::InfiniteDuration()); }
  static constexpr SteadyTime InfinitePast() { return SteadyTime(-absl::InfiniteDuration()); }

  constexpr absl::Duration since_start() const { return since_start_; }

  friend SteadyTime operator+(SteadyTime t, absl::Duration d) { return SteadyTime(t.since_start_ + d); }
  friend SteadyTime operator-(SteadyTime t, absl::Duration d) { return SteadyTime(t.since_start_ - d); }
  friend absl::Duration operator-(SteadyTime a, SteadyTime b) { return a.since_start_ - b.since_start_; }
  friend bool operator==(SteadyTime a, SteadyTime b) { return a.since_start_ == b.since_start_; }
  friend bool operator<(SteadyTime a, SteadyTime b) { return a.since_start_ < b.since_start_; }
  friend bool operator>(SteadyTime a, SteadyTime b) { return b < a; }
  friend bool operator<=(SteadyTime a, SteadyTime b) { return !(b < a); }
  friend bool operator>=(SteadyTime a, SteadyTime b) { return !(a < b); }

 private:
  explicit constexpr SteadyTime(absl::Duration since_start) : since_start_(since_start) {}
  absl::Duration since_start_;
};

// Reads the clock. Must not be called in a core/ directory.
SteadyTime SteadyNow();

// Returns the wall-clock time of SteadyTime's origin, according to the current setting of the wall clock:
// `WallTimeAtStart() + t.since_start()` is the wall-clock time of `t`. Must not be called in a core/ directory.
absl::Time WallTimeAtStart();

// Formats the time as in log lines: "2026-11-22T01:30:00.123Z". Thread-safe.
std::string UtcText(absl::Time time);

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

#endif  // DDPRUN_BASE_STEADY_TIME_H_
