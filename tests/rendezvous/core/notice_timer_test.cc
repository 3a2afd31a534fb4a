#include "rendezvous/core/notice_timer.h"

#include "gtest/gtest.h"

namespace ddprun::rendezvous {
namespace {

SteadyTime At(int ms) { return SteadyTime::FromStart(absl::Milliseconds(ms)); }

// Protocol 6.
TEST(NoticeTimerTest, Changes_ThenQuiet_AreSent) {
  NoticeTimer timer;
  EXPECT_EQ(timer.Due(), SteadyTime::InfiniteFuture());
  timer.Changed(At(0));
  EXPECT_EQ(timer.Due(), At(250));
  timer.Changed(At(200));
  EXPECT_EQ(timer.Due(), At(450));
}

TEST(NoticeTimerTest, Changes_Steady_AreSentAfterASecond) {
  NoticeTimer timer;
  for (int ms = 0; ms <= 2000; ms += 200) timer.Changed(At(ms));
  EXPECT_EQ(timer.Due(), At(1000));
}

TEST(NoticeTimerTest, Notices_AreASecondApart) {
  NoticeTimer timer;
  timer.Changed(At(0));
  timer.Sent(At(250));
  EXPECT_EQ(timer.Due(), SteadyTime::InfiniteFuture());
  timer.Changed(At(300));
  EXPECT_EQ(timer.Due(), At(1250));
  timer.Clear();
  EXPECT_EQ(timer.Due(), SteadyTime::InfiniteFuture());
  timer.Changed(At(1100));
  EXPECT_EQ(timer.Due(), At(1350));
}

}  // namespace
}  // namespace ddprun::rendezvous
