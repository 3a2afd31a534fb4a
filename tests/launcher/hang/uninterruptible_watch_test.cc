#include "launcher/hang/uninterruptible_watch.h"

#include <gtest/gtest.h>

#include <vector>

namespace ddprun::launcher {
namespace {

using Ranks = std::vector<int32_t>;

TEST(UninterruptibleWatch, Check_AsleepAtEveryCheck_IsFoundAtTheLimit) {
  UninterruptibleWatch watch(absl::Seconds(2));
  SteadyTime now;
  watch.BeginRound(now);
  const auto check = [&](std::vector<bool> asleep) {
    now = watch.NextDeadline();
    return watch.Check(asleep, now);
  };
  EXPECT_EQ(check({true, true}), Ranks());
  EXPECT_EQ(now, SteadyTime() + absl::Seconds(0.5));
  EXPECT_EQ(check({true, false}), Ranks()) << "rank 1 was awake";
  EXPECT_EQ(check({true, true}), Ranks());
  EXPECT_EQ(check({true, true}), Ranks());
  EXPECT_EQ(check({true, true}), Ranks{0});
  EXPECT_EQ(now, SteadyTime() + absl::Seconds(2.5));
  watch.BeginRound(now);
  EXPECT_EQ(check({true, true}), Ranks()) << "other processes";
  watch.EndRound();
  EXPECT_EQ(watch.NextDeadline(), SteadyTime::InfiniteFuture());
}

TEST(UninterruptibleWatch, NextDeadline_DependsOnTheLimit) {
  const SteadyTime now;
  for (const auto& [limit, interval] : std::vector<std::pair<absl::Duration, absl::Duration>>{
           {absl::Milliseconds(1), absl::Milliseconds(10)}, {absl::Hours(1), absl::Seconds(1)}}) {
    UninterruptibleWatch watch(limit);
    watch.BeginRound(now);
    EXPECT_EQ(watch.NextDeadline() - now, interval);
  }
  UninterruptibleWatch off(absl::ZeroDuration());
  off.BeginRound(now);
  EXPECT_EQ(off.NextDeadline(), SteadyTime::InfiniteFuture());
}

}  // namespace
}  // namespace ddprun::launcher
