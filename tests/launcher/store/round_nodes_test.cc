#include "launcher/store/round_nodes.h"

#include <gtest/gtest.h>

#include <string>

namespace ddprun::launcher {
namespace {

TEST(RoundNodes, NodeAt_AddressesOfANode_AllLeadToIt) {
  RoundNodes nodes;
  EXPECT_EQ(nodes.NodeAt("10.0.0.1"), "");
  nodes.Add("10.0.0.1", {"10.1.0.1", "fd00::1"}, 8);
  for (const std::string address : {"10.0.0.1", "10.1.0.1", "fd00::1"}) EXPECT_EQ(nodes.NodeAt(address), "10.0.0.1");
  EXPECT_EQ(nodes.NodeAt("10.0.0.2"), "");
}

// Every host with a container engine has the same address 172.17.0.1.
TEST(RoundNodes, NodeAt_AddressThatSeveralName_IsTheFirstsUnlessItRegistersFromThere) {
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
