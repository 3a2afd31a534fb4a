#include "rendezvous/core/departure.h"

#include <string>

#include "gtest/gtest.h"

namespace ddprun::rendezvous {
namespace {

Node At(const std::string& host, int32_t group_rank, NodeState state = NodeState::kRunning) {
  Node node;
  node.join.set_node_id(host);
  node.join.set_host(host);
  node.group_rank = group_rank;
  node.state = state;
  return node;
}

TEST(DepartureTest, Text_SpeaksOfTheFirstThatHadRanks) {
  Departure departure;
  EXPECT_TRUE(departure.empty());
  departure.Add(At("spare", -1), {"node spare is lost"});
  EXPECT_EQ(departure.Text(), "node spare is lost");
  EXPECT_FALSE(departure.had_ranks());
  departure.Add(At("a", 1), {"node a is lost", true});
  departure.Add(At("b", 0), {"node b is lost", true});
  EXPECT_EQ(departure.Text(), "node a is lost; 2 more nodes lost with it");
  EXPECT_EQ(departure.loss().host(), "a");
  EXPECT_TRUE(departure.had_ranks());
  EXPECT_TRUE(departure.ends_round());
}

TEST(DepartureTest, EndsRound_NotIfItsGroupHasSucceeded) {
  Departure departure;
  departure.Add(At("a", 0, NodeState::kSucceeded), {"node a left", false, 15});
  EXPECT_TRUE(departure.had_ranks());
  EXPECT_FALSE(departure.ends_round());
  EXPECT_FALSE(departure.told_to_stop()) << "it was no longer needed";
  EXPECT_TRUE(departure.may_all_return());
}

TEST(DepartureTest, ToldToStop_OneThatWas_AndWhetherAllMayReturn) {
  Departure departure;
  departure.Add(At("a", 0), {"node a is silent", true});
  EXPECT_TRUE(departure.may_all_return());
  departure.Add(At("b", 1), {"node b left", false, 15});
  EXPECT_FALSE(departure.may_all_return());
  EXPECT_TRUE(departure.told_to_stop());
  EXPECT_EQ(departure.loss().signal(), 0) << "the first one is spoken of";
}

class HeldFailureTest : public testing::Test {
 protected:
  void Add(const std::string& id, bool connected) {
    Join join = NewJoin();
    join.set_host(id);
    join.set_node_id(id);
    Node* node = members_.Add(join, SteadyTime());
    members_.SetGroupRank(node, next_rank_++);
    members_.SetState(node, NodeState::kRunning);
    if (!connected) members_.Disconnected(node, SteadyTime());
  }

  Membership members_{absl::Seconds(3), absl::Milliseconds(80)};
  const WorkerFailure failure_ = [] {
    WorkerFailure failure = NewFailure();
    failure.set_host("x");
    failure.set_exit_code(3);
    return failure;
  }();
  HeldFailure held_;
  int next_rank_ = 0;
};

TEST_F(HeldFailureTest, Hold_NobodyToSuspect_HoldsNothing) {
  Add("a", true);
  EXPECT_FALSE(held_.Hold(failure_, members_));
  EXPECT_FALSE(held_.Lost("a"));
}

TEST_F(HeldFailureTest, ItCountsWhenAllSuspectsCameBack) {
  Add("a", false);
  Add("b", false);
  Add("c", true);
  ASSERT_TRUE(held_.Hold(failure_, members_));
  EXPECT_EQ(held_.CameBack("c"), std::nullopt) << "it was never suspected";
  EXPECT_EQ(held_.CameBack("a"), std::nullopt);
  EXPECT_EQ(held_.CameBack("b"), failure_);
  EXPECT_EQ(held_.CameBack("b"), std::nullopt) << "judged once";
}

TEST_F(HeldFailureTest, ItFollowedFromTheLossOfASuspect) {
  Add("a", false);
  Add("b", false);
  ASSERT_TRUE(held_.Hold(failure_, members_));
  EXPECT_FALSE(held_.Lost("c"));
  EXPECT_TRUE(held_.Lost("a"));
  EXPECT_EQ(held_.CameBack("b"), std::nullopt);
}

TEST_F(HeldFailureTest, Drop_OnANewRound) {
  Add("a", false);
  ASSERT_TRUE(held_.Hold(failure_, members_));
  held_.Drop();
  EXPECT_FALSE(held_.Lost("a"));
}

}  // namespace
}  // namespace ddprun::rendezvous
