// Real Gloo workers on separate hosts: their interface, the ports at which they listen, and what is said when their
// network fails.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/e2e/launch.h"
#include "tests/hosts/hosts.h"

namespace ddprun::testing {
namespace {

using Addresses = Hosts::Addresses;

class GlooHostsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SKIP_WITHOUT_HOSTS();
    if (VenvPython().empty()) GTEST_SKIP() << "no .venv with torch (scripts/setup makes one)";
  }

  static constexpr char kSum[] = "sum=2 ";  // sum of two ranks

  // One of two nodes, whose worker waits `seconds` for the other.
  static std::vector<std::string> Node(const Hosts& hosts, int host, const std::string& endpoint,
                                       std::vector<std::string> more = {}, int seconds = 60) {
    std::vector<std::string> command = {"launcher/ddprun", "--nnodes=2", absl::StrCat("--rdzv-endpoint=", endpoint),
                                        absl::StrCat("--node-rank=", host - 1)};
    command.insert(command.end(), more.begin(), more.end());
    command.push_back("tests/hosts/hosts_gloo_worker.py");
    command.push_back(absl::StrCat(seconds));
    return hosts.On(host, command);
  }

  static std::map<std::string, std::string> Environment() { return {{"PYTHON_EXEC", VenvPython()}}; }

  static void ExpectSum(const Hosts& hosts, const std::string& endpoint, const std::string& interface,
                        const std::vector<std::string>& more = {}) {
    Process a(Node(hosts, 1, endpoint, more), Environment()), b(Node(hosts, 2, endpoint, more), Environment());
    for (Process* node : {&a, &b}) {
      EXPECT_EQ(node->Wait(), 0) << node->Err();
      EXPECT_EQ(Count(node->Out(), absl::StrCat("interface=", interface, " ")), 1) << node->Out();
      out_ += node->Out();
    }
    EXPECT_EQ(Count(a.Out() + b.Out(), kSum), 2) << a.Out() << b.Out();
  }

  static inline std::string out_;
};

TEST_F(GlooHostsTest, HostNamesAreLoopback_TheInterfaceOfTheRouteIsUsed) {
  Hosts hosts(2, Addresses::kIpv4);
  hosts.SetHostsFile(1, "127.0.1.1 node1\n");
  hosts.SetHostsFile(2, "127.0.1.1 node2\n10.77.0.1 node1\n");
  ExpectSum(hosts, "node1", "eth0");
}

TEST_F(GlooHostsTest, TwoNetworks_TheEndpointsIsUsedAlsoIfHostNamesSayOtherwise) {
  Hosts hosts(2, Addresses::kIpv4);
  const int fast = hosts.AddNetwork(Addresses::kIpv4);
  // By default Gloo uses the network of the host names.
  for (int host : {1, 2})
    hosts.Firewall(host, "table inet no { chain in { type filter hook input priority 0; iifname \"eth0\" drop; }; }");
  ExpectSum(hosts, absl::StrCat(Hosts::Ipv4(1, fast), ":29400"), "eth1");
}

TEST_F(GlooHostsTest, Ipv6Only_Works) {
  Hosts hosts(2, Addresses::kIpv6);
  ExpectSum(hosts, "node1", "eth0");
}

TEST_F(GlooHostsTest, FirewallWithPortRange_AllListenersKeepToIt) {
  Hosts hosts(2, Addresses::kIpv4);
  for (int host : {1, 2}) hosts.AllowOnlyPorts(host, 29400, 29409);
  out_.clear();
  ExpectSum(hosts, "node1", "eth0", {"--port-range=29400-29409"});
  int ports = 0;
  for (const absl::string_view line : absl::StrSplit(out_, '\n')) {
    const std::vector<absl::string_view> parts = absl::StrSplit(line, "ports=");
    if (parts.size() != 2) continue;
    for (const absl::string_view word : absl::StrSplit(parts[1], ' ')) {
      int port = 0;
      if (!absl::SimpleAtoi(word, &port)) continue;
      ++ports;
      EXPECT_TRUE(29400 <= port && port <= 29409) << line;
    }
  }
  // Each host has a store and a listener per process group (two); one has the server.
  EXPECT_EQ(ports, 7) << out_;
}

TEST_F(GlooHostsTest, PortRange_TooNarrow_IsNamed) {
  Hosts hosts(2, Addresses::kIpv4);
  const std::vector<std::string> narrow = {"--port-range=29400-29401"};
  Process a(Node(hosts, 1, "node1", narrow, 5), Environment()), b(Node(hosts, 2, "node1", narrow, 5), Environment());
  EXPECT_EQ(a.Wait(), 1);
  EXPECT_EQ(b.Wait(), 1);
  // The node whose worker fails first says it; the other's may be stopped before it needs a port.
  EXPECT_THAT(a.Err() + b.Err(), HasSubstr("no free port in 29400-29401; widen --port-range"));
}

TEST_F(GlooHostsTest, NetworkOfTheWorkersFails_BothNodesNameTheConnection) {
  Hosts hosts(2, Addresses::kIpv4);
  hosts.AddNetwork(Addresses::kIpv4);
  std::map<std::string, std::string> environment = Environment();
  environment.merge(std::map<std::string, std::string>{{"GLOO_SOCKET_IFNAME", "eth1"}, {"OMP_NUM_THREADS", "1"}});
  const auto node = [&](int host) {
    return hosts.On(host, {"launcher/ddprun", "--nnodes=2", "--rdzv-endpoint=node1",
                           absl::StrCat("--node-rank=", host - 1), "--on-hang=report:4", "tests/hang/train.py"});
  };
  Process a(node(1), environment), b(node(2), environment);
  ASSERT_TRUE(a.WaitForOut("step 10")) << a.Out() << a.Err() << b.Err();
  hosts.Firewall(2, "table inet cut { chain in { type filter hook input priority 0; iifname \"eth1\" drop; }; }");
  for (Process* launcher : {&a, &b}) {
    EXPECT_TRUE(launcher->WaitForErr("but data does not arrive from rank ")) << a.Err() << b.Err();
    EXPECT_THAT(launcher->Err(), AllOf(HasSubstr("rank 0 (node1)"), HasSubstr("rank 1 (node2)")));
  }
}

}  // namespace
}  // namespace ddprun::testing
