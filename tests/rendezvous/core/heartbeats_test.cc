#include "rendezvous/core/heartbeats.h"

#include "gtest/gtest.h"

namespace ddprun::rendezvous {
namespace {

TEST(HeartbeatsTest, StretchedTimeout_SmallJob_IsWhatWasAskedFor) {
  EXPECT_EQ(StretchedTimeout(absl::Seconds(3), 1), absl::Seconds(3));
  EXPECT_EQ(StretchedTimeout(absl::Seconds(3), 250), absl::Seconds(3));
  EXPECT_EQ(StretchedTimeout(absl::Minutes(5), 1000), absl::Minutes(5));
}

TEST(HeartbeatsTest, StretchedTimeout_LargeJob_BoundsItsBeatsInASecond) {
  for (const int64_t nodes : {300, 600, 1000, 5000}) {
    const absl::Duration interval = StretchedTimeout(absl::Seconds(3), nodes) / kBeatsPerTimeout;
    EXPECT_LE(nodes / absl::ToDoubleSeconds(interval), kMostBeatsPerSecond + 1e-6) << nodes;
  }
  EXPECT_EQ(StretchedTimeout(absl::Seconds(3), 1000), absl::Seconds(12));
  EXPECT_EQ(StretchedTimeout(absl::Seconds(3), 100'000), absl::Minutes(1)) << "loss has to be seen at some time";
}

TEST(HeartbeatsTest, LongestTimeout_IsNeverExceededWhateverTheSize) {
  JobSettings settings = DefaultSettings();
  settings.set_max_nodes(2000);
  for (int64_t nodes = 1; nodes <= settings.max_nodes(); nodes += 37) {
    EXPECT_LE(StretchedTimeout(ToDuration(settings.heartbeat_timeout()), nodes), LongestTimeout(settings));
  }
}

TEST(HeartbeatsTest, IdleTimeout_IsTensOfSecondsButNeverLessThanTheTimeout) {
  EXPECT_EQ(IdleTimeout(absl::Seconds(3)), absl::Seconds(30));
  EXPECT_EQ(IdleTimeout(absl::Milliseconds(300)), absl::Seconds(3));
  EXPECT_EQ(IdleTimeout(absl::Minutes(5)), absl::Minutes(5));
}

SteadyTime At(double seconds) { return SteadyTime::FromStart(absl::Seconds(seconds)); }

TEST(LatenessTest, ServerOnTime_NothingIsPutOff) {
  Lateness lateness;
  lateness.OnTurn(At(100), At(100));
  lateness.OnTurn(At(100), At(100.05));
  lateness.OnTurn(SteadyTime::InfiniteFuture(), At(101));
  for (int i = 0; i < 100; ++i) lateness.OnBeat(absl::Milliseconds(750), absl::Milliseconds(500));
  EXPECT_EQ(lateness.excused_until(), SteadyTime::InfinitePast());
  EXPECT_EQ(lateness.Allowance(), absl::ZeroDuration());
}

TEST(LatenessTest, Stall_AfterIt_NoNodeIsLostForAsLong) {
  Lateness lateness;
  lateness.OnTurn(At(100), At(104));
  EXPECT_EQ(lateness.excused_until(), At(108));
  lateness.OnTurn(At(104), At(105));
  EXPECT_EQ(lateness.excused_until(), At(108)) << "a shorter stall takes nothing back";
  lateness.OnTurn(At(105), At(86'500));
  EXPECT_EQ(lateness.excused_until(), At(86'530)) << "after a day of sleep too";
}

TEST(LatenessTest, BeatsOfAllAreLate_AllowsMoreThanTheyAreLateOnAverage) {
  Lateness lateness;
  for (int i = 0; i < 1000; ++i) lateness.OnBeat(absl::Seconds(i % 2 == 0 ? 1 : 5), absl::Milliseconds(500));
  EXPECT_GE(lateness.Allowance(), absl::Seconds(4));
  EXPECT_LE(lateness.Allowance(), absl::Seconds(6));
  for (int i = 0; i < 300; ++i) lateness.OnBeat(absl::Milliseconds(500), absl::Milliseconds(500));
  EXPECT_LE(lateness.Allowance(), absl::Milliseconds(10)) << "it is over";
  for (int i = 0; i < 300; ++i) lateness.OnBeat(absl::Hours(1), absl::Milliseconds(500));
  EXPECT_EQ(lateness.Allowance(), Lateness::kMost);
}

TEST(LatenessTest, OneOfManyNodesIsLate_AllowsHardlyAnything) {
  Lateness lateness;
  for (int i = 0; i < 1000; ++i) {
    lateness.OnBeat(absl::Milliseconds(i % 100 == 0 ? 2900 : 500), absl::Milliseconds(500));
    EXPECT_LE(lateness.Allowance(), absl::Milliseconds(150));
  }
}

}  // namespace
}  // namespace ddprun::rendezvous
