#include "rendezvous/core/fence.h"

#include "gtest/gtest.h"
#include "tests/testing/text_proto.h"

namespace ddprun::rendezvous {
namespace {

SteadyTime At(double seconds) { return SteadyTime::FromStart(absl::Seconds(seconds)); }

// Protocol 4.5 with H = 6 s.
class FenceTest : public testing::Test {
 protected:
  static JobSettings Settings() {
    JobSettings settings = DefaultSettings();
    *settings.mutable_heartbeat_timeout() = FromDuration(absl::Seconds(6));
    *settings.mutable_reconnect_grace() = FromDuration(absl::Seconds(1));
    return settings;
  }
  static Node NodeOf(bool in_process = false) {
    Node node;
    node.join.set_node_id("a");
    node.join.set_incarnation(2);
    node.join.mutable_origin()->set_in_process(in_process);
    node.heartbeat_timeout = ToDuration(Settings().heartbeat_timeout());
    node.last_heard = node.quiet_since = At(200);
    return node;
  }

  Fence fence_{Settings(), At(100), FencedNodes(), false};
};

TEST_F(FenceTest, NodesOfAServerBefore_HoldUpRoundsForThreeHalvesOfTheTimeout) { EXPECT_EQ(fence_.OpensAt(), At(109)); }

TEST_F(FenceTest, Complete_OfNodesThatNeverWereWithAServer_OpensAtOnce) {
  fence_.OnJoin(TextProto("node_id: 'a'", NewJoin()));
  fence_.Complete();
  EXPECT_EQ(fence_.OpensAt(), SteadyTime::InfinitePast());
}

TEST_F(FenceTest, Complete_WithAVeteran_StaysShut) {
  fence_.OnJoin(TextProto("node_id: 'a' incarnation: 2", NewJoin()));
  fence_.Complete();
  EXPECT_EQ(fence_.OpensAt(), At(109));
}

TEST_F(FenceTest, LatestRoundRuns_NobodyIsUnknown) {
  fence_.OnSilent(NodeOf());
  fence_.LatestRoundRuns();
  EXPECT_EQ(fence_.OpensAt(), At(207)) << "7/6 of the timeout after it was last heard";
}

TEST_F(FenceTest, LastRoundIsThere_NobodyIsUnknown) {
  fence_.OnJoin(TextProto("node_id: 'a' incarnation: 2", NewJoin()));
  fence_.LastRoundIsThere();
  EXPECT_EQ(fence_.OpensAt(), SteadyTime::InfinitePast());
}

TEST_F(FenceTest, ANodeThatWasToldALongerTimeout_IsWaitedForAccordingly) {
  Node node = NodeOf();
  node.heartbeat_timeout = absl::Seconds(12);
  fence_.OnSilent(node);
  EXPECT_EQ(fence_.OpensAt(), At(214));
}

TEST_F(FenceTest, LargeJob_NodesOfAServerBeforeMayHaveTheLongestTimeout) {
  JobSettings settings = Settings();
  settings.set_max_nodes(1000);
  EXPECT_EQ(Fence(settings, At(100), FencedNodes(), false).OpensAt(), At(118));
}

TEST_F(FenceTest, ANodeThatLeft_UntilItsStreamEnds) {
  fence_.OnLeft(NodeOf(), At(300));
  EXPECT_EQ(fence_.OpensAt(), At(307));
  EXPECT_TRUE(fence_.OnHeartbeat("a", 2, At(310)));
  EXPECT_EQ(fence_.OpensAt(), At(317));
  EXPECT_FALSE(fence_.OnHeartbeat("a", 1, At(400))) << "an older incarnation proves nothing";
  EXPECT_TRUE(fence_.OnStreamClosed("a", 2));
  EXPECT_EQ(fence_.OpensAt(), At(109));
}

TEST_F(FenceTest, ANodeOfThisProcess_OnlyItsStreamTells) {
  fence_.OnLeft(NodeOf(true), At(300));
  EXPECT_EQ(fence_.OpensAt(), SteadyTime::InfiniteFuture());
}

TEST_F(FenceTest, ANodeThatJoinsAgain_SpeaksForItself) {
  fence_.OnSilent(NodeOf());
  fence_.OnJoin(TextProto("node_id: 'a' incarnation: 3", NewJoin()));
  EXPECT_EQ(fence_.OpensAt(), At(109));
}

// Protocol 4.4: the record of a server before.
TEST_F(FenceTest, AllAreNamed_OnlyThoseAreWaitedFor) {
  Fence named(Settings(), At(100), FencedNodes(), true);
  EXPECT_EQ(named.OpensAt(), SteadyTime::InfinitePast());
  named.OnUnknownRound();
  EXPECT_EQ(named.OpensAt(), At(109)) << "somebody else has given out rounds";
  FencedNodes left;
  left.Add("a", 2, At(109));
  EXPECT_EQ(Fence(Settings(), At(100), left, true).OpensAt(), At(109));
}

TEST_F(FenceTest, Complete_OfARestoredJob_StaysShut) {
  fence_.OnRestored();
  fence_.OnJoin(TextProto("node_id: 'a'", NewJoin()));
  fence_.Complete();
  EXPECT_EQ(fence_.OpensAt(), At(109));
}

// Protocol 2.4.
TEST_F(FenceTest, ANodeThatIsGone_KeepsItsSession) {
  Node node = NodeOf();
  node.session = "digest";
  EXPECT_EQ(fence_.FindSession("a"), nullptr);
  fence_.OnSilent(node);
  ASSERT_NE(fence_.FindSession("a"), nullptr);
  fence_.OnHeartbeat("a", 2, At(300));
  EXPECT_EQ(*fence_.FindSession("a"), "digest");
  fence_.OnLeft(node, At(310));
  EXPECT_EQ(*fence_.FindSession("a"), "digest");
  fence_.OnJobEnd(node, At(320));
  EXPECT_EQ(*fence_.FindSession("a"), "digest");
}

TEST_F(FenceTest, JobEnd_ABrokenStreamThatDoesNotComeBackIsADeadLauncher) {
  Node node = NodeOf();
  node.connected = false;
  fence_.OnJobEnd(node, At(200.5));
  EXPECT_EQ(fence_.OpensAt(), At(201));
  node.connected = true;
  fence_.OnJobEnd(node, At(300));
  EXPECT_EQ(fence_.OpensAt(), At(307));
}

}  // namespace
}  // namespace ddprun::rendezvous
