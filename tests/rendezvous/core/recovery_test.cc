#include "rendezvous/core/recovery.h"

#include "gtest/gtest.h"
#include "tests/testing/text_proto.h"

namespace ddprun::rendezvous {
namespace {

TEST(RecoveryTest, Begin_GivesNodesThreeHeartbeatTimeoutsAndTheGrace) {
  Recovery recovery;
  recovery.Begin(TextProto("heartbeat_timeout { seconds: 3 } reconnect_grace { nanos: 80000000 }", DefaultSettings()),
                 SteadyTime::FromStart(absl::Seconds(100)));
  EXPECT_EQ(recovery.until(), SteadyTime::FromStart(absl::Milliseconds(109'080)));
}

TEST(RecoveryTest, Report_CountsEachPlaceOnce) {
  Recovery recovery;
  EXPECT_TRUE(recovery.Report(0));
  EXPECT_TRUE(recovery.Report(2));
  EXPECT_FALSE(recovery.Report(2)) << "two nodes can't have the same place";
  EXPECT_EQ(recovery.reported(), 2);
  recovery.Forget(2);
  EXPECT_EQ(recovery.reported(), 1);
  EXPECT_TRUE(recovery.Report(2));
}

TEST(RecoveryTest, Gone_IsAccountedForOnce) {
  Recovery recovery;
  recovery.Gone(1);
  recovery.Gone(2);
  EXPECT_EQ(recovery.accounted_for(), 2);
  EXPECT_TRUE(recovery.Report(1)) << "it came back before the server was restarted";
  EXPECT_EQ(recovery.accounted_for(), 2);
  recovery.Forget(1);
  EXPECT_EQ(recovery.accounted_for(), 1);
  recovery.StartOver();
  EXPECT_EQ(recovery.accounted_for(), 0);
}

TEST(RecoveryTest, StartOver_ForgetsAllButTheTime) {
  Recovery recovery;
  recovery.Begin(DefaultSettings(), SteadyTime::FromStart(absl::Seconds(1)));
  const SteadyTime until = recovery.until();
  EXPECT_FALSE(recovery.anybody());
  recovery.Report(1);
  recovery.Forget(1);
  EXPECT_TRUE(recovery.anybody()) << "also of those that are gone again";
  recovery.Report(1);
  EXPECT_FALSE(recovery.left_before());
  recovery.BeginLeft();
  EXPECT_TRUE(recovery.left_before() && recovery.leaving());
  EXPECT_TRUE(recovery.Fail());
  EXPECT_FALSE(recovery.Fail()) << "only the first failure counts";
  recovery.StartOver();
  EXPECT_EQ(recovery.reported(), 0);
  EXPECT_FALSE(recovery.left_before() || recovery.leaving());
  EXPECT_TRUE(recovery.Fail());
  EXPECT_EQ(recovery.until(), until);
}

}  // namespace
}  // namespace ddprun::rendezvous
