#include "rendezvous/core/round.h"

#include "gtest/gtest.h"
#include "tests/testing/text_proto.h"

namespace ddprun::rendezvous {
namespace {

Node Master() {
  Node node;
  node.join.set_host("node-a");
  node.join.set_address("10.0.0.5");
  node.join.set_store_port(4000);
  return node;
}

TEST(RoundTest, Assign_TakesTheNextNumberAboveAllThatWereReported) {
  Round round(7, uint64_t{1} << 62);
  EXPECT_FALSE(round.Learn(7));
  EXPECT_TRUE(round.Learn(9));
  round.Assign(Master(), 2, 8, "all 2 nodes joined");
  EXPECT_EQ(round.number(), 10u);
  EXPECT_EQ(round.highest(), 10u);
  EXPECT_EQ(round.record().master_addr, "10.0.0.5");
  EXPECT_TRUE(round.HasStoreAt("10.0.0.5", 4000));
  EXPECT_FALSE(round.HasStoreAt("10.0.0.5", 4001));
}

TEST(RoundTest, Recorded_ItsNodesAreKnownByName) {
  Round given(0, uint64_t{1} << 62);
  given.Assign(Master(), 2, 8, "all 2 nodes joined", {{"a", "digest of a"}, {"b", "digest of b"}});
  given.Gone(1);
  EXPECT_TRUE(given.record().nodes[1].gone);
  EXPECT_FALSE(given.record().nodes[0].gone);
  Round restored(given.record(), given.highest());
  EXPECT_TRUE(restored.names_all());
  EXPECT_EQ(restored.RecordedRank("b"), 1);
  EXPECT_EQ(restored.RecordedRank("c"), -1);
  EXPECT_EQ(*restored.RecordedSession("b"), "digest of b");
  EXPECT_EQ(restored.RecordedSession("c"), nullptr);
  EXPECT_TRUE(restored.MayHavePlace("b", 1));
  EXPECT_FALSE(restored.MayHavePlace("b", 0));
  EXPECT_FALSE(restored.MayHavePlace("c", 1));
  restored.Learn(7);
  EXPECT_FALSE(restored.names_all()) << "somebody else has given out rounds";
  restored.Resume(TextProto<Assignment>("round: 7"));
  EXPECT_FALSE(restored.names_all());
  EXPECT_EQ(restored.RecordedRank("b"), -1);
  EXPECT_TRUE(restored.MayHavePlace("c", 1));
}

TEST(RoundTest, Resume_OfAnOlderRound_DoesNotLowerTheHighest) {
  Round round(7, uint64_t{1} << 62);
  round.Resume(TextProto<Assignment>("round: 5 group_world_size: 2"));
  EXPECT_EQ(round.number(), 5u);
  EXPECT_EQ(round.highest(), 7u);
}

TEST(RoundTest, PlaceOf_TellsTheNodeWhatResumeUnderstands) {
  Round given(0, uint64_t{1} << 62);
  given.Assign(Master(), 2, 8, "all 2 nodes joined");
  Node node;
  node.group_rank = 1;
  node.base_rank = 4;
  const Assignment place = given.PlaceOf(node, 3);
  EXPECT_EQ(place.group_rank(), 1);
  EXPECT_EQ(place.base_rank(), 4);
  EXPECT_EQ(place.restart_count(), 3);
  Round taken(0, uint64_t{1} << 62);
  taken.Resume(place);
  EXPECT_EQ(taken.record(), given.record());
}

TEST(RoundTest, StopOf_TellsTheCauseOfItsOwnRoundOnly) {
  Round round(0, uint64_t{1} << 62);
  round.Assign(Master(), 1, 1, "");
  EXPECT_EQ(round.StopOf(1).reason(), "round 1 is over");
  round.Leave("rank 0 exited with code 3", NewFailure());
  EXPECT_EQ(round.StopOf(1).reason(), "rank 0 exited with code 3");
  EXPECT_TRUE(round.StopOf(1).has_first_cause());
  round.Assign(Master(), 1, 1, "");
  EXPECT_EQ(round.StopOf(1).reason(), "round 1 is over");
  EXPECT_FALSE(round.StopOf(1).has_first_cause());
  EXPECT_TRUE(round.leave_reason().empty());
}

// Protocol 3.8.
TEST(RoundTest, StopOf_KeepsWorkersOfItsOwnRoundOnly) {
  Round round(0, uint64_t{1} << 62);
  round.Assign(Master(), 1, 1, "");
  round.Assign(Master(), 1, 1, "");
  round.Leave("node b joined", std::nullopt, true);
  EXPECT_TRUE(round.StopOf(2, true).keep_workers());
  EXPECT_TRUE(round.StopOf(2, true).at_step_end());
  EXPECT_FALSE(round.StopOf(2, false).keep_workers());
  EXPECT_FALSE(round.StopOf(1, true).keep_workers()) << "they missed a round";
  EXPECT_FALSE(round.StopOf(1, true).at_step_end());
  round.Leave("rank 0 exited with code 3", NewFailure());
  EXPECT_FALSE(round.StopOf(2, true).at_step_end());
}

TEST(RoundTest, PlaceOf_NamesTheStateSource) {
  Round round(0, uint64_t{1} << 62);
  Node node = Master();
  node.keeps_workers = true;
  round.Assign(node, 1, 4, "", {}, StateSource{3, 120});
  EXPECT_TRUE(round.PlaceOf(node, 0).keeps_workers());
  EXPECT_EQ(round.PlaceOf(node, 0).state_source(), 3);
  EXPECT_EQ(round.PlaceOf(node, 0).state_step(), 120);
  round.Assign(node, 1, 4, "");
  EXPECT_FALSE(round.PlaceOf(node, 0).has_state_source());
  EXPECT_FALSE(round.PlaceOf(node, 0).has_state_step());
}

TEST(RoundTest, Successes_AreOfThisRound) {
  Round round(0, uint64_t{1} << 62);
  round.Assign(Master(), 2, 2, "");
  round.AddSuccess();
  EXPECT_TRUE(round.any_succeeded());
  EXPECT_FALSE(round.all_succeeded());
  round.AddSuccess();
  EXPECT_TRUE(round.all_succeeded());
  round.TakeBackSuccess();
  EXPECT_FALSE(round.all_succeeded());
  round.Assign(Master(), 2, 2, "");
  EXPECT_FALSE(round.any_succeeded());
}

}  // namespace
}  // namespace ddprun::rendezvous
