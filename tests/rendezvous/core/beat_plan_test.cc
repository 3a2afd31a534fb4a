#include "rendezvous/core/beat_plan.h"

#include "gtest/gtest.h"

namespace ddprun::rendezvous {
namespace {

TEST(BeatPlanTest, StretchedTimeout_SmallJob_IsWhatWasAskedFor) {
  EXPECT_EQ(StretchedTimeout(absl::Seconds(3), 1), absl::Seconds(3));
  EXPECT_EQ(StretchedTimeout(absl::Seconds(3), 250), absl::Seconds(3));
  EXPECT_EQ(StretchedTimeout(absl::Minutes(5), 1000), absl::Minutes(5));
}

TEST(BeatPlanTest, StretchedTimeout_LargeJob_BoundsItsBeatsInASecond) {
  for (const int64_t nodes : {300, 600, 1000, 5000}) {
    const absl::Duration interval = StretchedTimeout(absl::Seconds(3), nodes) / kBeatsPerTimeout;
    EXPECT_LE(nodes / absl::ToDoubleSeconds(interval), kMostBeatsPerSecond + 1e-6) << nodes;
  }
  EXPECT_EQ(StretchedTimeout(absl::Seconds(3), 1000), absl::Seconds(12));
  EXPECT_EQ(StretchedTimeout(absl::Seconds(3), 100'000), absl::Minutes(1)) << "loss has to be seen at some time";
}

TEST(BeatPlanTest, LongestTimeout_IsNeverExceededWhateverTheSize) {
  JobSettings settings = DefaultSettings();
  settings.set_max_nodes(2000);
  for (int64_t nodes = 1; nodes <= settings.max_nodes(); nodes += 37) {
    EXPECT_LE(StretchedTimeout(ToDuration(settings.heartbeat_timeout()), nodes), LongestTimeout(settings));
  }
}

TEST(BeatPlanTest, IdleTimeout_IsTensOfSecondsButNeverLessThanTheTimeout) {
  EXPECT_EQ(IdleTimeout(absl::Seconds(3)), absl::Seconds(30));
  EXPECT_EQ(IdleTimeout(absl::Milliseconds(300)), absl::Seconds(3));
  EXPECT_EQ(IdleTimeout(absl::Minutes(5)), absl::Minutes(5));
}

}  // namespace
}  // namespace ddprun::rendezvous
