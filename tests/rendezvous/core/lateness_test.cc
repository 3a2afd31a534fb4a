#include "rendezvous/core/lateness.h"

#include "gtest/gtest.h"

namespace ddprun::rendezvous {
namespace {

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
