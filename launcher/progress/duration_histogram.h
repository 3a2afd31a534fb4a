#ifndef DDPRUN_LAUNCHER_PROGRESS_DURATION_HISTOGRAM_H_
#define DDPRUN_LAUNCHER_PROGRESS_DURATION_HISTOGRAM_H_

#include <array>
#include <cstdint>

#include "absl/time/time.h"

namespace ddprun::launcher {

// PURE: how long something took, each time, in constant memory. Durations are known to one part in eight: a percentile
// is never less than the true one, and at most an eighth more. Old durations fade: whenever kFadeAt have come, all
// counts are halved, and a duration that came once is forgotten. Thread-compatible.
class DurationHistogram {
 public:
  static constexpr int64_t kFadeAt = 1 << 14;

  // Less than a millisecond counts as one; more than a week as that.
  void Add(absl::Duration duration);

  int64_t count() const { return count_; }
  // The shortest duration that `share` (above 0, at most 1) of all durations do not exceed. Of n durations with
  // n * (1 - share) < 1 that is the largest. Zero if there are none.
  absl::Duration Percentile(double share) const;
  absl::Duration Largest() const { return Percentile(1); }

 private:
  // Each bucket ends an eighth later than the one before: 1 ms * 1.125^172 is more than a week.
  static constexpr int kBuckets = 173;

  std::array<int32_t, kBuckets> buckets_{};
  int64_t count_ = 0;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROGRESS_DURATION_HISTOGRAM_H_
