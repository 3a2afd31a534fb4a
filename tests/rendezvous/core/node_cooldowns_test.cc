#include "rendezvous/core/node_cooldowns.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "rendezvous/core/participants.h"

namespace ddprun::rendezvous {
namespace {

using Ids = std::vector<std::string>;

SteadyTime At(double seconds) { return SteadyTime::FromStart(absl::Seconds(seconds)); }

void Fail(NodeCooldowns* cooldowns, const std::string& node_id, int times, SteadyTime now) {
  for (int i = 0; i < times; ++i) cooldowns->OnFirstCause(node_id, now);
}

TEST(NodeCooldownsTest, Charge_ThirdFirstCauseInARow_StartsCooldown) {
  NodeCooldowns cooldowns(absl::Minutes(1));
  Fail(&cooldowns, "a", 2, At(0));
  Fail(&cooldowns, "b", 2, At(0));
  Fail(&cooldowns, "a", 2, At(0));
  EXPECT_FALSE(cooldowns.any());
  EXPECT_EQ(cooldowns.NextEnd(), SteadyTime::InfiniteFuture());
  Fail(&cooldowns, "a", 1, At(5));
  EXPECT_EQ(cooldowns.Nodes(), Ids{"a"});
  EXPECT_EQ(cooldowns.NextEnd(), At(65));
}

TEST(NodeCooldownsTest, OnStuckWorker_Once_StartsCooldown) {
  NodeCooldowns cooldowns(absl::Minutes(1));
  cooldowns.OnStuckWorker("a", At(0));
  EXPECT_EQ(cooldowns.NextEnd(), At(60));
  EXPECT_TRUE(cooldowns.IsForStuckWorker("a"));
  cooldowns.OnStuckWorker("a", At(30));
  EXPECT_EQ(cooldowns.NextEnd(), At(90)) << "a second report of the same worker";
  cooldowns.Expire(At(90));
  Fail(&cooldowns, "a", 3, At(100));
  EXPECT_EQ(cooldowns.NextEnd(), At(220));
  EXPECT_FALSE(cooldowns.IsForStuckWorker("a"));
  EXPECT_FALSE(cooldowns.IsForStuckWorker("b"));
  NodeCooldowns off(absl::ZeroDuration());
  off.OnStuckWorker("a", At(0));
  EXPECT_FALSE(off.any());
}

TEST(NodeCooldownsTest, EachIsTwiceAsLong_UpToTheLongest) {
  NodeCooldowns cooldowns(absl::Minutes(1));
  Fail(&cooldowns, "a", 2, At(0));
  for (const int minutes : {1, 2, 4, 8, 10, 10}) {
    Fail(&cooldowns, "a", 1, At(0));
    EXPECT_EQ(cooldowns.NextEnd(), At(60 * minutes));
    EXPECT_EQ(cooldowns.Length("a"), absl::Minutes(minutes));
  }
  NodeCooldowns long_ones(absl::Hours(1));
  Fail(&long_ones, "a", 4, At(0));
  EXPECT_EQ(long_ones.NextEnd(), At(3600)) << "what was asked for is not cut";
}

TEST(NodeCooldownsTest, Expire_EndsThoseThatAreOver) {
  NodeCooldowns cooldowns(absl::Minutes(1));
  Fail(&cooldowns, "b", 3, At(0));
  Fail(&cooldowns, "a", 3, At(10));
  EXPECT_EQ(cooldowns.Nodes(), (Ids{"b", "a"})) << "in the order in which they end";
  EXPECT_FALSE(cooldowns.Expire(At(59)));
  EXPECT_TRUE(cooldowns.Expire(At(60)));
  EXPECT_EQ(cooldowns.Nodes(), Ids{"a"});
  EXPECT_TRUE(cooldowns.Expire(At(70)));
  EXPECT_FALSE(cooldowns.any());
  Fail(&cooldowns, "a", 1, At(80));
  EXPECT_EQ(cooldowns.NextEnd(), At(200)) << "the row goes on, and it is the second time";
}

TEST(NodeCooldownsTest, Charge_ZeroCooldown_IsOff) {
  NodeCooldowns cooldowns(absl::ZeroDuration());
  Fail(&cooldowns, "a", 9, At(0));
  EXPECT_FALSE(cooldowns.any());
}

TEST(NodeCooldownsTest, WithTooManyNodes_TheOldestIsForgotten) {
  NodeCooldowns cooldowns(absl::Minutes(1));
  for (size_t i = 0; i <= NodeCooldowns::kMaxNodes; ++i) Fail(&cooldowns, absl::StrCat("n", i), 3, At(0));
  EXPECT_EQ(cooldowns.Nodes().size(), NodeCooldowns::kMaxNodes);
  EXPECT_EQ(cooldowns.Nodes().front(), "n1");
}

TEST(NodeCooldownsTest, Record_ReadByOtherServer_CooldownContinues) {
  NodeCooldowns before(absl::Minutes(1));
  Fail(&before, "a", 4, At(0));
  Fail(&before, "b", 3, At(100));
  before.Expire(At(120));
  JobRecord record;
  before.Record(At(130), &record);
  NodeCooldowns after(absl::Minutes(1), record, At(1000));
  EXPECT_EQ(after.Nodes(), Ids{"b"});
  EXPECT_EQ(after.NextEnd(), At(1030));
  Fail(&after, "b", 1, At(1010));
  EXPECT_EQ(after.NextEnd(), At(1130)) << "the row and the doubling go on";
  Fail(&after, "a", 3, At(1010));
  EXPECT_EQ(after.Length("a"), absl::Minutes(4));
}

// Protocol 3.9.
TEST(LeftOutTest, OnlyWhoCanBeSpared_TheFirstToEndIsTakenBack) {
  Membership members{absl::Seconds(3), absl::Milliseconds(80)};
  NodeCooldowns cooldowns(absl::Minutes(1));
  const auto ids = [&](size_t min_nodes) {
    std::string ids;
    for (const auto& node : members.nodes()) {
      if (LeftOut(members, {cooldowns, DrainedHosts(), min_nodes, 100}).contains(node.get()))
        ids += node->join.node_id();
    }
    return ids;
  };
  for (const std::string id : {"a", "b", "c", "d"}) {
    Join join = NewJoin();
    join.set_host(id);
    join.set_node_id(id);
    members.Add(join, SteadyTime());
  }
  EXPECT_EQ(ids(1), "");
  Fail(&cooldowns, "b", 3, At(1));
  Fail(&cooldowns, "a", 3, At(2));
  Fail(&cooldowns, "not here", 3, At(3));
  EXPECT_EQ(ids(1), "ab");
  EXPECT_EQ(ids(2), "ab");
  EXPECT_EQ(ids(3), "a");
  EXPECT_EQ(ids(4), "");
  EXPECT_EQ(ids(5), "");

  Node* a = members.Find("a");
  a->may_claim_touch = true;
  EXPECT_FALSE(ReadyForRound(members, 4, {a})) << "it has not answered";
  a->may_claim_touch = false;
  EXPECT_TRUE(ReadyForRound(members, 4, {a}));
  members.Disconnected(members.Find("b"), SteadyTime());
  EXPECT_FALSE(ReadyForRound(members, 3, {a})) << "b may come back";
  EXPECT_TRUE(ReadyForRound(members, 2, {a}));
}

}  // namespace
}  // namespace ddprun::rendezvous
