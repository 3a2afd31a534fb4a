#include "rendezvous/core/participants.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace ddprun::rendezvous {
namespace {

google::protobuf::RepeatedPtrField<Survivor> Survivors(const std::vector<Survivor>& survivors) {
  return {survivors.begin(), survivors.end()};
}

class ParticipantsTest : public testing::Test {
 protected:
  Node* Add(const std::string& id, int32_t group_rank = -1, NodeState state = NodeState::kIdle) {
    Join join = NewJoin();
    join.set_host(id);
    join.set_node_id(id);
    Node* node = members_.Add(join, SteadyTime());
    members_.SetGroupRank(node, group_rank);
    members_.SetState(node, state);
    return node;
  }
  std::string Ids(size_t max_nodes) const {
    std::string ids;
    for (const Node* node : Participants(members_, max_nodes)) ids += node->join.node_id();
    return ids;
  }

  Membership members_{absl::Seconds(3), absl::Milliseconds(80)};
};

TEST_F(ParticipantsTest, ThoseOfTheLastRoundComeFirst) {
  Add("a");
  Add("b", 0);
  Add("c", 1);
  EXPECT_EQ(Ids(2), "bc");
  EXPECT_EQ(Ids(3), "bca");
}

// Protocol 4.5.
TEST_F(ParticipantsTest, ThoseInTouchComeBeforeOthers) {
  Add("a");
  members_.SetInTouch(Add("b"), true);
  Add("c", 0);
  EXPECT_EQ(Ids(2), "cb");
  EXPECT_EQ(Ids(3), "cba");
}

TEST_F(ParticipantsTest, ReadyForRound_WaitsForWorkersAndForTheLastRound) {
  Node* a = Add("a", 0, NodeState::kStopping);
  Node* b = Add("b");
  EXPECT_FALSE(ReadyForRound(members_, 2));
  members_.SetState(a, NodeState::kIdle);
  EXPECT_TRUE(ReadyForRound(members_, 2));
  members_.Disconnected(a, SteadyTime());
  EXPECT_FALSE(ReadyForRound(members_, 1)) << "it takes part, and may come back";
  members_.Reconnected(a, SteadyTime());
  members_.Disconnected(b, SteadyTime());
  EXPECT_FALSE(ReadyForRound(members_, 2)) << "there is room for it";
  EXPECT_TRUE(ReadyForRound(members_, 1)) << "a spare is not waited for";
}

TEST_F(ParticipantsTest, RanksOf_KeepsSurvivorsInTheirOrder) {
  Add("a", 1);
  Add("b", 0);
  const RankTable table = RanksOf(Participants(members_, 2));
  EXPECT_EQ(table.places[0].group_rank, 1);
  EXPECT_EQ(table.places[1].group_rank, 0);
  EXPECT_EQ(table.world_size, 2);
}

// Protocol 3.8.
TEST_F(ParticipantsTest, StateSourceOf_IsTheMostAdvancedOfTheLowestRank) {
  Node* a = Add("a", 1);
  Node* b = Add("b", 0);
  for (Node* node : {a, b}) node->join.set_slots(4);
  const auto source = [&] {
    const std::vector<Node*> nodes = Participants(members_, 2);
    return StateSourceOf(nodes, RanksOf(nodes));
  };
  EXPECT_EQ(source(), std::nullopt);
  members_.SetSurvivors(a, Survivors({NewSurvivor(0), NewSurvivor(3)}), true);
  EXPECT_EQ(source(), std::nullopt) << "they have no state";
  members_.SetSurvivors(a, Survivors({NewSurvivor(0), NewSurvivor(3, 0)}), true);
  EXPECT_EQ(source(), (StateSource{7, 0}));
  members_.SetSurvivors(b, Survivors({NewSurvivor(1, 5), NewSurvivor(2, 5)}), true);
  EXPECT_EQ(source(), (StateSource{1, 5}));
  members_.SetSurvivors(a, Survivors({NewSurvivor(0, 5), NewSurvivor(1, 6)}), true);
  EXPECT_EQ(source(), (StateSource{5, 6}));
}

}  // namespace
}  // namespace ddprun::rendezvous
