#include "launcher/store/connection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace ddprun::launcher {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

SteadyTime At(int seconds) { return SteadyTime::FromStart(absl::Seconds(seconds)); }

class PendingConnectionsTest : public testing::Test {
 protected:
  PendingConnections pending_{{.patience = absl::Seconds(10), .strangers = 3, .strangers_of_address = 2}};
};

TEST_F(PendingConnectionsTest, Expired_InOrderAndNotBeforeTheTime) {
  EXPECT_EQ(pending_.NextDeadline(), SteadyTime::InfiniteFuture());
  ASSERT_TRUE(pending_.Add(1, "", At(0)));
  ASSERT_TRUE(pending_.Add(2, "10.0.0.1", At(1)));
  EXPECT_EQ(pending_.NextDeadline(), At(10));
  EXPECT_EQ(pending_.Expired(At(9)), std::nullopt);
  EXPECT_EQ(pending_.Expired(At(10)), 1u);
  pending_.Remove(1);
  EXPECT_EQ(pending_.Expired(At(10)), std::nullopt);
  EXPECT_EQ(pending_.NextDeadline(), At(11));
  EXPECT_EQ(pending_.Expired(At(11)), 2u);
  pending_.Remove(2);
  pending_.Remove(2);
  EXPECT_EQ(pending_.NextDeadline(), SteadyTime::InfiniteFuture());
}

TEST_F(PendingConnectionsTest, Add_TooManyOfAnAddress_RefusedUntilOneIsGone) {
  EXPECT_TRUE(pending_.Add(1, "10.0.0.1", At(0)));
  EXPECT_TRUE(pending_.Add(2, "10.0.0.1", At(0)));
  EXPECT_FALSE(pending_.Add(3, "10.0.0.1", At(0)));
  EXPECT_TRUE(pending_.Add(4, "10.0.0.2", At(0)));
  pending_.Remove(1);
  EXPECT_TRUE(pending_.Add(5, "10.0.0.1", At(0)));
  EXPECT_THAT(pending_.Of("10.0.0.1"), ElementsAre(2, 5));
  EXPECT_THAT(pending_.Of("10.0.0.9"), IsEmpty());
}

TEST_F(PendingConnectionsTest, Surplus_TheOldestStranger_NeverANodesConnection) {
  for (ClientId id = 1; id <= 5; ++id) ASSERT_TRUE(pending_.Add(id, "", At(0)));
  for (ClientId id = 11; id <= 13; ++id) ASSERT_TRUE(pending_.Add(id, absl::StrCat("10.0.0.", id), At(0)));
  EXPECT_EQ(pending_.Surplus(), std::nullopt);
  ASSERT_TRUE(pending_.Add(14, "10.0.0.14", At(0)));
  EXPECT_EQ(pending_.Surplus(), 11u);
  pending_.Remove(11);
  EXPECT_EQ(pending_.Surplus(), std::nullopt);
}

TEST(RoundNodes, NodeAt_AddressesOfANode_AllLeadToIt) {
  RoundNodes nodes;
  EXPECT_EQ(nodes.NodeAt("10.0.0.1"), "");
  nodes.Add("10.0.0.1", {"10.1.0.1", "fd00::1"}, 8);
  for (const std::string address : {"10.0.0.1", "10.1.0.1", "fd00::1"}) EXPECT_EQ(nodes.NodeAt(address), "10.0.0.1");
  EXPECT_EQ(nodes.NodeAt("10.0.0.2"), "");
}

// Every host with a container engine has the same address 172.17.0.1.
TEST(RoundNodes, NodeAt_AddressNamedBySeveral_FirstNodeUnlessRegistered) {
  RoundNodes nodes;
  nodes.Add("10.0.0.1", {"172.17.0.1"}, 8);
  nodes.Add("10.0.0.2", {"172.17.0.1", "10.0.0.1"}, 8);
  EXPECT_EQ(nodes.NodeAt("172.17.0.1"), "10.0.0.1");
  EXPECT_EQ(nodes.NodeAt("10.0.0.1"), "10.0.0.1");
  nodes.Add("172.17.0.1", {}, 8);
  EXPECT_EQ(nodes.NodeAt("172.17.0.1"), "172.17.0.1");
}

TEST(RoundNodes, Connect_BoundedByTheWorkersOfTheNode) {
  RoundNodes nodes;
  EXPECT_FALSE(nodes.Connect("10.0.0.1"));
  nodes.Add("10.0.0.1", {}, 2);
  const int most = RoundNodes::kConnectionsOfNode + 2 * RoundNodes::kConnectionsOfWorker;
  for (int i = 0; i < most; ++i) ASSERT_TRUE(nodes.Connect("10.0.0.1")) << i;
  EXPECT_FALSE(nodes.Connect("10.0.0.1"));
  nodes.Disconnect("10.0.0.1");
  EXPECT_TRUE(nodes.Connect("10.0.0.1"));
  EXPECT_FALSE(nodes.Connect("10.0.0.1"));
  // A second launcher behind the same address brings its own workers.
  nodes.Add("10.0.0.1", {}, 1);
  EXPECT_TRUE(nodes.Connect("10.0.0.1"));
}

}  // namespace

}  // namespace ddprun::launcher
