#ifndef DDPRUN_LAUNCHER_PROGRESS_DURATION_HISTOGRAM_H_
#define DDPRUN_LAUNCHER_PROGRESS_DURATION_HISTOGRAM_H_

#include <array>
#include <cstdint>

#include "absl/time/time.h"

namespace ddprun::launcher {

// PURE: a histogram of durations in constant memory. Its resolution is one part in eight: a percentile is never less
// than the true one, and at most an eighth more. Old durations fade: after every kFadeAt durations all counts are
// halved, which forgets durations seen once. Thread-compatible.
class DurationHistogram {
 public:
  static constexpr int64_t kFadeAt = 1 << 14;

  // Durations are clamped to a range of one millisecond to one week.
  void Add(absl::Duration duration);

  int64_t count() const { return count_; }
  // Returns the smallest duration that a `share` (above 0, at most 1) of all durations does not exceed. For n durations
  // with n * (1 - share) < 1 this is the largest. Zero if there are none.
  absl::Duration Percentile(double share) const;
  absl::Duration Largest() const { return Percentile(1); }

 private:
  // Each bucket's upper bound is an eighth above the previous one: 1 ms * 1.125^172 is more than a week.
  static constexpr int kBuckets = 173;

  std::array<int32_t, kBuckets> buckets_{};
  int64_t count_ = 0;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROGRESS_DURATION_HISTOGRAM_H_
