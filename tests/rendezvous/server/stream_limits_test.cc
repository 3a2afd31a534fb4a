#include "rendezvous/server/stream_limits.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace ddprun::rendezvous {
namespace {

SteadyTime At(int seconds) { return SteadyTime::FromStart(absl::Seconds(seconds)); }
StreamLimits::Key Stream(intptr_t i) { return reinterpret_cast<StreamLimits::Key>(i); }

TEST(StreamLimitsTest, NoJoinInTime_IsOverdueOnce) {
  StreamLimits limits({.first_message = absl::Seconds(10)});
  EXPECT_EQ(limits.NextDeadline(), SteadyTime::InfiniteFuture());
  ASSERT_TRUE(limits.Open(Stream(1), "a", At(0)).ok());
  ASSERT_TRUE(limits.Open(Stream(2), "a", At(1)).ok());
  ASSERT_TRUE(limits.Open(Stream(3), "a", At(2)).ok());
  limits.Joined(Stream(2));
  EXPECT_EQ(limits.NextDeadline(), At(10));
  EXPECT_TRUE(limits.TakeOverdue(At(9)).empty());
  EXPECT_EQ(limits.TakeOverdue(At(11)), std::vector<StreamLimits::Key>{Stream(1)});
  EXPECT_TRUE(limits.TakeOverdue(At(11)).empty());
  limits.Closed(Stream(3));
  EXPECT_EQ(limits.NextDeadline(), SteadyTime::InfiniteFuture());
}

TEST(StreamLimitsTest, TooManyWait_TheOldestGoes) {
  StreamLimits limits({.waiting = 2});
  for (int i = 1; i <= 2; ++i) {
    ASSERT_TRUE(limits.Open(Stream(i), "a", At(i)).ok());
    EXPECT_EQ(limits.TakeSurplus(), nullptr);
  }
  ASSERT_TRUE(limits.Open(Stream(3), "b", At(3)).ok());
  EXPECT_EQ(limits.TakeSurplus(), Stream(1));
  EXPECT_EQ(limits.TakeSurplus(), nullptr);
  limits.Joined(Stream(2));
  ASSERT_TRUE(limits.Open(Stream(4), "b", At(4)).ok());
  EXPECT_EQ(limits.TakeSurplus(), nullptr);
}

TEST(StreamLimitsTest, TooManyOfOneAddress_OthersGetIn) {
  StreamLimits limits({.streams_per_address = 2});
  for (int i = 1; i <= 2; ++i) {
    ASSERT_TRUE(limits.Open(Stream(i), "a", At(0)).ok());
    limits.Joined(Stream(i));
  }
  EXPECT_TRUE(absl::IsResourceExhausted(limits.Open(Stream(3), "a", At(0))));
  EXPECT_TRUE(limits.Open(Stream(4), "b", At(0)).ok());
  limits.Closed(Stream(1));
  EXPECT_TRUE(limits.Open(Stream(3), "a", At(0)).ok());
}

TEST(StreamLimitsTest, TooManyInAll) {
  StreamLimits limits({.streams = 2});
  for (int i = 1; i <= 2; ++i) {
    ASSERT_TRUE(limits.Open(Stream(i), absl::StrCat("a", i), At(0)).ok());
    limits.Joined(Stream(i));
  }
  EXPECT_TRUE(absl::IsResourceExhausted(limits.Open(Stream(3), "b", At(0))));
  limits.Closed(Stream(3));  // which was never taken in
  limits.Closed(Stream(2));
  limits.Closed(Stream(2));
  EXPECT_TRUE(limits.Open(Stream(3), "b", At(0)).ok());
}

}  // namespace
}  // namespace ddprun::rendezvous
