#include "launcher/hang/uninterruptible_watch.h"

#include <algorithm>

namespace ddprun::launcher {

void UninterruptibleWatch::BeginRound(SteadyTime now) {
  since_.clear();
  if (limit_ > absl::ZeroDuration()) due_.Set(now + Interval());
}

std::vector<int32_t> UninterruptibleWatch::Check(const std::vector<bool>& asleep, SteadyTime now) {
  due_.Set(now + Interval());
  since_.resize(asleep.size(), SteadyTime::InfiniteFuture());
  std::vector<int32_t> found;
  for (size_t i = 0; i < asleep.size(); ++i) {
    since_[i] = asleep[i] ? std::min(since_[i], now) : SteadyTime::InfiniteFuture();
    if (asleep[i] && now - since_[i] >= limit_) found.push_back(static_cast<int32_t>(i));
  }
  return found;
}

absl::Duration UninterruptibleWatch::Interval() const {
  return std::clamp(limit_ / 4, absl::Milliseconds(10), absl::Seconds(1));
}

}  // namespace ddprun::launcher
