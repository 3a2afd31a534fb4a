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
  Node* Add(const std::string& id) { return m.Add(Named(id), At(absl::ZeroDuration())); }

  Membership m{kTimeout, kGrace};
};

TEST_F(MembershipTest, Silence_ExpiresTheOneHeardOfFirst) {
  Node* a = m.Add(Named("a"), At(absl::Seconds(0)));
  Node* b = m.Add(Named("b"), At(absl::Seconds(1)));
  for (Node* node : {a, b}) m.SetState(node, NodeState::kRunning);
  EXPECT_EQ(m.NextExpiry(), At(absl::Seconds(3)));
  m.Heard(a, At(absl::Seconds(2)));
  EXPECT_EQ(m.NextExpiry(), At(absl::Seconds(4)));
  EXPECT_EQ(m.Expired(At(absl::Milliseconds(3999))), nullptr);
  EXPECT_EQ(m.Expired(At(absl::Seconds(4))), b);
  m.Remove(b);
  EXPECT_EQ(m.NextExpiry(), At(absl::Seconds(5)));
  EXPECT_EQ(m.Find("b"), nullptr);
  EXPECT_EQ(m.Find("a"), a);
}

TEST_F(MembershipTest, OnHosts_InTheOrderInWhichTheyJoined) {
  const auto add = [&](const std::string& id, const std::string& host) {
    Join join = Named(id);
    join.set_host(host);
    return m.Add(join, At(absl::ZeroDuration()));
  };
  Node* b1 = add("1", "b");
  add("2", "c");
  Node* a3 = add("3", "a");
  Node* b4 = add("4", "b");
  EXPECT_EQ(m.OnHosts({"a", "b", "d"}), (std::vector<Node*>{b1, a3, b4}));
  EXPECT_TRUE(m.OnHosts({}).empty());
  m.Remove(b1);
  EXPECT_EQ(m.OnHosts({"b"}), std::vector<Node*>{b4});
  EXPECT_TRUE(m.HasHost("b"));
  m.Remove(b4);
  EXPECT_FALSE(m.HasHost("b"));
  EXPECT_TRUE(m.OnHosts({"b"}).empty());
}

TEST_F(MembershipTest, Untold_IsInTouchButNotOfTheLatestRound) {
  Node* a = Add("a");
  Node* b = Add("b");
  m.SetInTouch(a, true);
  m.SetInTouch(b, true);
  EXPECT_EQ(m.in_touch(), 2u);
  EXPECT_EQ(m.untold(), 2u);
  m.SetGroupRank(a, 0);
  EXPECT_EQ(m.untold(), 1u);
  m.Remove(b);
  EXPECT_EQ(m.in_touch(), 1u);
  EXPECT_EQ(m.untold(), 0u);
}

TEST_F(MembershipTest, Silence_WithoutWorkersExpiresLater) {
  Node* a = Add("a");
  EXPECT_EQ(m.NextExpiry(), At(absl::Seconds(30)));
  EXPECT_FALSE(m.IsQuiet(*a, At(absl::Milliseconds(2999))));
  EXPECT_TRUE(m.IsQuiet(*a, At(absl::Seconds(3))));
  EXPECT_EQ(m.Expired(At(absl::Seconds(3))), nullptr);
  m.SetState(a, NodeState::kSucceeded);
  EXPECT_EQ(m.NextExpiry(), At(absl::Seconds(30)));
  // It is given something to do: from then on its heartbeat timeout counts, and not from when it was last heard.
  m.Expect(a, At(absl::Seconds(20)));
  m.SetState(a, NodeState::kRunning);
  EXPECT_EQ(m.NextExpiry(), At(absl::Seconds(23)));
  EXPECT_EQ(m.Expired(At(absl::Seconds(23))), a);
  EXPECT_EQ(a->last_heard, At(absl::ZeroDuration()));
}

TEST_F(MembershipTest, Silence_OfALateServerIsPutOffButBrokenStreamsAreNot) {
  Lateness lateness;
  Membership m(kTimeout, kGrace, &lateness);
  Node* a = m.Add(Named("a"), At(absl::ZeroDuration()));
  m.SetState(a, NodeState::kRunning);
  lateness.OnTurn(At(absl::Seconds(3)), At(absl::Seconds(7)));
  EXPECT_EQ(m.Expired(At(absl::Seconds(10))), nullptr);
  EXPECT_EQ(m.NextExpiry(), At(absl::Seconds(11)));
  EXPECT_EQ(m.Expired(At(absl::Seconds(11))), a);
  m.Disconnected(a, At(absl::Seconds(7)));
  EXPECT_EQ(m.NextExpiry(), At(absl::Seconds(7) + kGrace));
}

TEST_F(MembershipTest, BrokenStream_ExpiresAfterTheGraceUnlessItIsBack) {
  Node* a = Add("a");
  m.Disconnected(a, At(absl::Seconds(1)));
  EXPECT_EQ(m.ready(), 0u);
  EXPECT_EQ(m.NextExpiry(), At(absl::Seconds(1) + kGrace));
  m.Heard(a, At(absl::Seconds(2)));  // of a stream that is gone
  EXPECT_EQ(m.NextExpiry(), At(absl::Seconds(1) + kGrace));
  m.Reconnected(a, At(absl::Milliseconds(1010)));
  EXPECT_EQ(m.ready(), 1u);
  EXPECT_EQ(m.NextExpiry(), At(absl::Milliseconds(1010) + m.Patience(*a)));
}

TEST_F(MembershipTest, InProcess_IsNeverSilentButCanBreak) {
  Join join = Named("a");
  join.mutable_origin()->set_in_process(true);
  Node* a = m.Add(join, At(absl::ZeroDuration()));
  m.Heard(a, At(absl::Seconds(1)));
  EXPECT_EQ(m.NextExpiry(), SteadyTime::InfiniteFuture());
  m.Disconnected(a, At(absl::Seconds(1)));
  EXPECT_EQ(m.Expired(At(absl::Seconds(2))), a);
}

TEST_F(MembershipTest, RequestedRankes_MoveToTheNewHolder) {
  Join join = Named("a");
  join.set_node_rank(2);
  Node* a = m.Add(join, At(absl::ZeroDuration()));
  EXPECT_EQ(m.FindByRequestedRank(2), a);
  join.set_node_id("b");
  Node* b = m.Add(join, At(absl::ZeroDuration()));
  EXPECT_EQ(m.FindByRequestedRank(2), b);
  EXPECT_EQ(a->node_rank, std::nullopt);
  m.Remove(a);
  EXPECT_EQ(m.FindByRequestedRank(2), b);
  m.Remove(b);
  EXPECT_EQ(m.FindByRequestedRank(2), nullptr);
}

TEST_F(MembershipTest, RandomChanges_KeepTheCountsAndTheOrder) {
  std::mt19937 random(3);
  std::vector<Node*> nodes;
  SteadyTime now = At(absl::ZeroDuration());
  for (int i = 0; i < 20'000; ++i) {
    now = now + absl::Milliseconds(random() % 3);
    if (nodes.empty() || random() % 9 == 0) nodes.push_back(m.Add(Named(absl::StrCat("n", i)), now));
    Node*& node = nodes[random() % nodes.size()];
    switch (random() % 6) {
      case 0: m.Heard(node, now); break;
      case 1: m.Disconnected(node, now); break;
      case 2: m.Reconnected(node, now); break;
      case 3: m.SetState(node, static_cast<NodeState>(random() % 4)); break;
      case 4: m.SetGroupRank(node, static_cast<int>(random() % 3) - 1); break;
      default:
        if (nodes.size() < 8) break;
        m.Remove(node);
        node = nodes.back();
        nodes.pop_back();
    }
    size_t ready = 0, unready_in_round = 0;
    SteadyTime next = SteadyTime::InfiniteFuture();
    for (const Node* n : nodes) {
      if (n->ready()) ++ready;
      if (n->in_round() && !n->ready()) ++unready_in_round;
      next = std::min(next, n->connected ? n->quiet_since + m.Patience(*n) : n->last_heard + kGrace);
    }
    ASSERT_EQ(m.ready(), ready);
    ASSERT_EQ(m.unready_in_round(), unready_in_round);
    ASSERT_EQ(m.NextExpiry(), next);
    ASSERT_EQ(m.size(), nodes.size());
  }
}

}  // namespace
}  // namespace ddprun::rendezvous
