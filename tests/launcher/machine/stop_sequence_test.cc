#include "launcher/machine/stop_sequence.h"

#include <gtest/gtest.h>

namespace ddprun::launcher {
namespace {

using Step = StopSequence::Step;
constexpr SteadyTime kNoLimit = SteadyTime::InfiniteFuture();

TEST(StopSequence, KillsAfterTheGrace_ThenAbandons) {
  SteadyTime now;
  StopSequence stop;
  EXPECT_EQ(stop.NextDeadline(now), kNoLimit) << "nothing is stopping";
  stop.Start(absl::Seconds(5), now);
  EXPECT_EQ(stop.Take(kNoLimit, now), Step::kNone);
  now = stop.NextDeadline(kNoLimit);
  EXPECT_EQ(stop.Take(kNoLimit, now), Step::kKill);
  EXPECT_EQ(stop.NextDeadline(kNoLimit) - now, StopSequence::kAbandonAfter);
  now = stop.NextDeadline(kNoLimit);
  EXPECT_EQ(stop.Take(kNoLimit, now), Step::kAbandon);
  EXPECT_EQ(stop.NextDeadline(kNoLimit), kNoLimit);
}

TEST(StopSequence, LimitAndHurry_ShortenTheGrace) {
  const SteadyTime now;
  StopSequence stop;
  stop.Start(absl::Seconds(5), now);
  EXPECT_EQ(stop.KillAt(now + absl::Seconds(1)), now + absl::Seconds(1));
  EXPECT_EQ(stop.KillAt(kNoLimit), now + absl::Seconds(5));
  stop.Hurry(now);
  EXPECT_EQ(stop.Take(kNoLimit, now), Step::kKill);
  stop.Hurry(now);
  EXPECT_EQ(stop.Take(kNoLimit, now), Step::kAbandon);
}

TEST(StopSequence, KillOfSome_OthersKeepTheirGrace) {
  const SteadyTime now;
  StopSequence stop;
  stop.Start(absl::Seconds(5), now);
  stop.OnKilled(now);
  EXPECT_EQ(stop.NextDeadline(kNoLimit), now + absl::Seconds(5));
  stop.Clear();
  stop.OnKilled(now);
  EXPECT_EQ(stop.NextDeadline(kNoLimit), now + StopSequence::kAbandonAfter);
}

}  // namespace
}  // namespace ddprun::launcher
