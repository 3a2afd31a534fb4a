#include "launcher/progress/duration_histogram.h"

#include <algorithm>
#include <cmath>

namespace ddprun::launcher {
namespace {

constexpr double kGrowth = 1.125;

}  // namespace

void DurationHistogram::Add(absl::Duration duration) {
  const double milliseconds = std::max(1.0, absl::ToDoubleMilliseconds(duration));
  const double bucket = std::ceil(std::log(milliseconds) / std::log(kGrowth));
  ++buckets_[static_cast<int>(std::clamp(bucket, 0.0, kBuckets - 1.0))];
  if (++count_ < kFadeAt) return;
  count_ = 0;
  for (int32_t& count : buckets_) count_ += count /= 2;
}

absl::Duration DurationHistogram::Percentile(double share) const {
  if (count_ == 0) return absl::ZeroDuration();
  int64_t left = std::clamp<int64_t>(static_cast<int64_t>(std::ceil(share * static_cast<double>(count_))), 1, count_);
  int bucket = 0;
  while ((left -= buckets_[bucket]) > 0) ++bucket;
  return absl::Milliseconds(std::pow(kGrowth, bucket));
}

}  // namespace ddprun::launcher
