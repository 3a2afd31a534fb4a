#include "rendezvous/core/membership.h"

#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace ddprun::rendezvous {
namespace {

constexpr absl::Duration kTimeout = absl::Seconds(3);
constexpr absl::Duration kGrace = absl::Milliseconds(80);

SteadyTime At(absl::Duration d) { return SteadyTime::FromStart(d); }

Join Named(const std::string& id) {
  Join join = NewJoin();
  join.set_node_id(id);
  join.set_host(id);
  return join;
}

class MembershipTest : public ::testing::Test {
 protected:
  Node* Add(const std::string& id) { return members_.Add(Named(id), At(absl::ZeroDuration())); }

  Membership members_{kTimeout, kGrace};
};

TEST_F(MembershipTest, Silence_ExpiresTheOneHeardOfFirst) {
  Node* a = members_.Add(Named("a"), At(absl::Seconds(0)));
  Node* b = members_.Add(Named("b"), At(absl::Seconds(1)));
  for (Node* node : {a, b}) members_.SetState(node, NodeState::kRunning);
  EXPECT_EQ(members_.NextExpiry(), At(absl::Seconds(3)));
  members_.Heard(a, At(absl::Seconds(2)));
  EXPECT_EQ(members_.NextExpiry(), At(absl::Seconds(4)));
  EXPECT_EQ(members_.Expired(At(absl::Milliseconds(3999))), nullptr);
  EXPECT_EQ(members_.Expired(At(absl::Seconds(4))), b);
  members_.Remove(b);
  EXPECT_EQ(members_.NextExpiry(), At(absl::Seconds(5)));
  EXPECT_EQ(members_.Find("b"), nullptr);
  EXPECT_EQ(members_.Find("a"), a);
}

TEST_F(MembershipTest, OnHosts_InTheOrderInWhichTheyJoined) {
  const auto add = [&](const std::string& id, const std::string& host) {
    Join join = Named(id);
    join.set_host(host);
    return members_.Add(join, At(absl::ZeroDuration()));
  };
  Node* b1 = add("1", "b");
  add("2", "c");
  Node* a3 = add("3", "a");
  Node* b4 = add("4", "b");
  EXPECT_EQ(members_.OnHosts({"a", "b", "d"}), (std::vector<Node*>{b1, a3, b4}));
  EXPECT_TRUE(members_.OnHosts({}).empty());
  members_.Remove(b1);
  EXPECT_EQ(members_.OnHosts({"b"}), std::vector<Node*>{b4});
  EXPECT_TRUE(members_.HasHost("b"));
  members_.Remove(b4);
  EXPECT_FALSE(members_.HasHost("b"));
  EXPECT_TRUE(members_.OnHosts({"b"}).empty());
}

TEST_F(MembershipTest, Untold_IsInTouchButNotOfTheLatestRound) {
  Node* a = Add("a");
  Node* b = Add("b");
  members_.SetInTouch(a, true);
  members_.SetInTouch(b, true);
  EXPECT_EQ(members_.in_touch(), 2u);
  EXPECT_EQ(members_.untold(), 2u);
  members_.SetGroupRank(a, 0);
  EXPECT_EQ(members_.untold(), 1u);
  members_.Remove(b);
  EXPECT_EQ(members_.in_touch(), 1u);
  EXPECT_EQ(members_.untold(), 0u);
}

TEST_F(MembershipTest, Silence_WithoutWorkersExpiresLater) {
  Node* a = Add("a");
  EXPECT_EQ(members_.NextExpiry(), At(absl::Seconds(30)));
  EXPECT_FALSE(members_.IsQuiet(*a, At(absl::Milliseconds(2999))));
  EXPECT_TRUE(members_.IsQuiet(*a, At(absl::Seconds(3))));
  EXPECT_EQ(members_.Expired(At(absl::Seconds(3))), nullptr);
  members_.SetState(a, NodeState::kSucceeded);
  EXPECT_EQ(members_.NextExpiry(), At(absl::Seconds(30)));
  // It is given something to do: from then on its heartbeat timeout counts, and not from when it was last heard.
  members_.Expect(a, At(absl::Seconds(20)));
  members_.SetState(a, NodeState::kRunning);
  EXPECT_EQ(members_.NextExpiry(), At(absl::Seconds(23)));
  EXPECT_EQ(members_.Expired(At(absl::Seconds(23))), a);
  EXPECT_EQ(a->last_heard, At(absl::ZeroDuration()));
}

TEST_F(MembershipTest, Silence_OfALateServerIsPutOffButBrokenStreamsAreNot) {
  Lateness lateness;
  Membership members(kTimeout, kGrace, &lateness);
  Node* a = members.Add(Named("a"), At(absl::ZeroDuration()));
  members.SetState(a, NodeState::kRunning);
  lateness.OnTurn(At(absl::Seconds(3)), At(absl::Seconds(7)));
  EXPECT_EQ(members.Expired(At(absl::Seconds(10))), nullptr);
  EXPECT_EQ(members.NextExpiry(), At(absl::Seconds(11)));
  EXPECT_EQ(members.Expired(At(absl::Seconds(11))), a);
  members.Disconnected(a, At(absl::Seconds(7)));
  EXPECT_EQ(members.NextExpiry(), At(absl::Seconds(7) + kGrace));
}

TEST_F(MembershipTest, BrokenStream_ExpiresAfterTheGraceUnlessItIsBack) {
  Node* a = Add("a");
  members_.Disconnected(a, At(absl::Seconds(1)));
  EXPECT_EQ(members_.ready(), 0u);
  EXPECT_EQ(members_.NextExpiry(), At(absl::Seconds(1) + kGrace));
  members_.Heard(a, At(absl::Seconds(2)));  // a stream that is gone
  EXPECT_EQ(members_.NextExpiry(), At(absl::Seconds(1) + kGrace));
  members_.Reconnected(a, At(absl::Milliseconds(1010)));
  EXPECT_EQ(members_.ready(), 1u);
  EXPECT_EQ(members_.NextExpiry(), At(absl::Milliseconds(1010) + members_.Patience(*a)));
}

TEST_F(MembershipTest, InProcess_IsNeverSilentButCanBreak) {
  Join join = Named("a");
  join.mutable_origin()->set_in_process(true);
  Node* a = members_.Add(join, At(absl::ZeroDuration()));
  members_.Heard(a, At(absl::Seconds(1)));
  EXPECT_EQ(members_.NextExpiry(), SteadyTime::InfiniteFuture());
  members_.Disconnected(a, At(absl::Seconds(1)));
  EXPECT_EQ(members_.Expired(At(absl::Seconds(2))), a);
}

TEST_F(MembershipTest, RequestedRankes_MoveToTheNewHolder) {
  Join join = Named("a");
  join.set_node_rank(2);
  Node* a = members_.Add(join, At(absl::ZeroDuration()));
  EXPECT_EQ(members_.FindByRequestedRank(2), a);
  join.set_node_id("b");
  Node* b = members_.Add(join, At(absl::ZeroDuration()));
  EXPECT_EQ(members_.FindByRequestedRank(2), b);
  EXPECT_EQ(a->node_rank, std::nullopt);
  members_.Remove(a);
  EXPECT_EQ(members_.FindByRequestedRank(2), b);
  members_.Remove(b);
  EXPECT_EQ(members_.FindByRequestedRank(2), nullptr);
}

TEST_F(MembershipTest, RandomChanges_KeepTheCountsAndTheOrder) {
  std::mt19937 random(3);
  std::vector<Node*> nodes;
  SteadyTime now = At(absl::ZeroDuration());
  for (int i = 0; i < 20'000; ++i) {
    now = now + absl::Milliseconds(random() % 3);
    if (nodes.empty() || random() % 9 == 0) nodes.push_back(members_.Add(Named(absl::StrCat("n", i)), now));
    Node*& node = nodes[random() % nodes.size()];
    switch (random() % 6) {
      case 0: members_.Heard(node, now); break;
      case 1: members_.Disconnected(node, now); break;
      case 2: members_.Reconnected(node, now); break;
      case 3: members_.SetState(node, static_cast<NodeState>(random() % 4)); break;
      case 4: members_.SetGroupRank(node, static_cast<int>(random() % 3) - 1); break;
      default:
        if (nodes.size() < 8) break;
        members_.Remove(node);
        node = nodes.back();
        nodes.pop_back();
    }
    size_t ready = 0, unready_in_round = 0;
    SteadyTime next = SteadyTime::InfiniteFuture();
    for (const Node* n : nodes) {
      if (n->ready()) ++ready;
      if (n->in_round() && !n->ready()) ++unready_in_round;
      next = std::min(next, n->connected ? n->quiet_since + members_.Patience(*n) : n->last_heard + kGrace);
    }
    ASSERT_EQ(members_.ready(), ready);
    ASSERT_EQ(members_.unready_in_round(), unready_in_round);
    ASSERT_EQ(members_.NextExpiry(), next);
    ASSERT_EQ(members_.size(), nodes.size());
  }
}

}  // namespace
}  // namespace ddprun::rendezvous
