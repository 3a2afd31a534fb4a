// Launchers on separate hosts: address detection, and messages where it fails.
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/e2e/launch.h"
#include "tests/hosts/hosts.h"

namespace ddprun::testing {
namespace {

using Addresses = Hosts::Addresses;

constexpr char kTell[] = "echo \"rank=$RANK master=$MASTER_ADDR interface=$GLOO_SOCKET_IFNAME .\"";
// For jobs that must fail. Longer than the timeout of a connection without answer.
constexpr char kSoon[] = "--rdzv-conf=join_timeout=7";

bool Has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// A launcher of a two-node job.
class Node : public Process {
 public:
  Node(const Hosts& hosts, int host, const std::string& endpoint, std::vector<std::string> more = {},
       const std::string& script = kTell)
      : Process(hosts.On(host, Command(endpoint, std::move(more), script))) {}

 private:
  static std::vector<std::string> Command(const std::string& endpoint, std::vector<std::string> more,
                                          const std::string& script) {
    std::vector<std::string> command = {"launcher/ddprun", "--nnodes=2", absl::StrCat("--rdzv-endpoint=", endpoint),
                                        "--rdzv-id=job"};
    command.insert(command.end(), more.begin(), more.end());
    for (const char* word : {"--no-python", "sh", "-c"}) command.push_back(word);
    command.push_back(script);
    return command;
  }
};

// Waits for the success of both, and returns the output of the first, the master.
void ExpectMaster(Node* a, Node* b, const std::string& address, const std::string& interface) {
  EXPECT_EQ(a->Wait(), 0) << a->Err();
  EXPECT_EQ(b->Wait(), 0) << b->Err();
  const std::string told = absl::StrCat(" master=", address, " interface=", interface, " .\n");
  EXPECT_EQ(Count(a->Out() + b->Out(), told), 2) << a->Out() << b->Out() << a->Err() << b->Err();
}

TEST(AddressesTest, OneFamily_IsFound) {
  SKIP_WITHOUT_HOSTS();
  for (const Addresses family : {Addresses::kIpv4, Addresses::kIpv6}) {
    Hosts hosts(2, family);
    Node a(hosts, 1, "node1"), b(hosts, 2, "node1");
    ExpectMaster(&a, &b, family == Addresses::kIpv4 ? Hosts::Ipv4(1) : Hosts::Ipv6(1), "eth0");
  }
}

TEST(AddressesTest, BothFamilies_EachNumericEndpointIsUsedAsItIs) {
  SKIP_WITHOUT_HOSTS();
  Hosts hosts(2);
  {
    Node a(hosts, 1, Hosts::Ipv4(1)), b(hosts, 2, Hosts::Ipv4(1));
    ExpectMaster(&a, &b, Hosts::Ipv4(1), "eth0");
  }
  const std::string v6 = absl::StrCat("[", Hosts::Ipv6(1), "]:29400");
  Node a(hosts, 1, v6), b(hosts, 2, v6);
  ExpectMaster(&a, &b, Hosts::Ipv6(1), "eth0");
  EXPECT_TRUE(Has(a.Err(), absl::StrCat("master [", Hosts::Ipv6(1), "]:"))) << a.Err();
}

TEST(AddressesTest, TwoNetworks_TheEndpointsIsTaken) {
  SKIP_WITHOUT_HOSTS();
  Hosts hosts(2, Addresses::kIpv4);
  const int fast = hosts.AddNetwork(Addresses::kIpv4);
  for (int host : {1, 2}) hosts.SetHostsFile(host, absl::StrCat(Hosts::Ipv4(1, fast), " node1\n"));
  Node a(hosts, 1, "node1"), b(hosts, 2, "node1");
  ExpectMaster(&a, &b, Hosts::Ipv4(1, fast), "eth1");
}

TEST(AddressesTest, HostNames_DifferentNetworks_ErrorNamesThemAndLocalAddrHelps) {
  SKIP_WITHOUT_HOSTS();
  Hosts hosts(2, Addresses::kIpv4);
  const int fast = hosts.AddNetwork(Addresses::kIpv4);
  hosts.SetHostsFile(2, absl::StrCat(Hosts::Ipv4(1, fast), " node1\n"));
  {
    Node a(hosts, 1, "node1", {"--rdzv-conf=join_timeout=2"}), b(hosts, 2, "node1", {"--rdzv-conf=join_timeout=2"});
    EXPECT_EQ(a.Wait(), 1);
    EXPECT_TRUE(Has(a.Err(), "this node serves at 10.77.0.1:29400\n")) << a.Err();
    EXPECT_EQ(b.Wait(), 1);
    EXPECT_TRUE(Has(b.Err(), "node2 (10.78.0.2): tried 10.78.0.1:29400: connection refused; start it")) << b.Err();
  }
  Node a(hosts, 1, "node1", {"--local-addr", Hosts::Ipv4(1, fast)}), b(hosts, 2, "node1");
  ExpectMaster(&a, &b, Hosts::Ipv4(1, fast), "eth1");
}

TEST(AddressesTest, HostName_NotResolvable_OthersReachTheNode) {
  SKIP_WITHOUT_HOSTS();
  Hosts hosts(2, Addresses::kIpv4);
  // Debian's loopback alias, a name that only other hosts know, and one that belongs to another host.
  for (const char* own : {"127.0.1.1 node1\n", "", "10.77.0.99 node1\n"}) {
    hosts.SetHostsFile(1, own);
    Node a(hosts, 1, "node1"), b(hosts, 2, "node1");
    ExpectMaster(&a, &b, Hosts::Ipv4(1), "eth0");
  }
}

TEST(AddressesTest, Endpoint_ForeignNameWithIsHost_ServesWhereOthersReachIt) {
  SKIP_WITHOUT_HOSTS();
  Hosts hosts(2, Addresses::kIpv4);
  const std::vector<std::string> host = {"--rdzv-conf=is_host=1"}, no_host = {"--rdzv-conf=is_host=0"};
  {
    hosts.SetHostsFile(2, "10.77.0.1 head\n");
    Node a(hosts, 1, "head", host), b(hosts, 2, "head", no_host);
    ExpectMaster(&a, &b, Hosts::Ipv4(1), "eth0");
  }
  Node a(hosts, 1, "node2", {"--rdzv-conf=is_host=1,join_timeout=2"});
  EXPECT_EQ(a.Wait(), 1);
  EXPECT_TRUE(Has(a.Err(), "this node serves at 10.77.0.1:29400 (node2 is 10.77.0.2, fd77::2 here)") ||
              Has(a.Err(), "this node serves at 10.77.0.1:29400 (node2 is 10.77.0.2 here)"))
      << a.Err();
}

TEST(AddressesTest, UnknownName_IsAUsageError) {
  SKIP_WITHOUT_HOSTS();
  Hosts hosts(2, Addresses::kIpv4);
  Node b(hosts, 2, "nowhere");
  EXPECT_EQ(b.Wait(), 2);
  EXPECT_TRUE(Has(b.Err(), "--rdzv-endpoint=nowhere:29400: can't resolve host 'nowhere': ")) << b.Err();
  EXPECT_TRUE(Has(b.Err(), "that node2 can reach")) << b.Err();
  Node c(hosts, 2, "10.99.0.1");
  EXPECT_EQ(c.Wait(), 2);
  EXPECT_TRUE(Has(c.Err(), "no route from this host to '10.99.0.1'")) << c.Err();
  EXPECT_EQ(Lines(b.Err()) + Lines(c.Err()), 2);
}

TEST(AddressesTest, Endpoint_NameAppearsLate_IsAwaited) {
  SKIP_WITHOUT_HOSTS();
  Hosts hosts(2, Addresses::kIpv4);
  hosts.SetHostsFile(2, "");
  const auto late = [&](const char* patience) { return hosts.On(2, {"tests/hosts/late_launcher", "node1", patience}); };
  {
    Node a(hosts, 1, "node1", {"--rdzv-conf=join_timeout=100"});
    Process b(late("100"));
    ASSERT_TRUE(b.WaitForErr("can't resolve host 'node1'")) << b.Err();
    hosts.SetHostsFile(2, "10.77.0.1 node1\n");
    EXPECT_EQ(a.Wait(), 0) << a.Err();
    EXPECT_EQ(b.Wait(), 0) << b.Err();
    EXPECT_TRUE(Has(b.Err(), "node2 (10.77.0.2) is node 1 of 2")) << b.Err();
  }
  hosts.SetHostsFile(2, "");
  {
    Process b(late("1"));
    EXPECT_EQ(b.Wait(), 1) << "a usage error would not be tried again";
    EXPECT_EQ(Count(b.Err(), "can't resolve host 'node1'"), 2) << b.Err();
  }
  Process b(late("100"));
  ASSERT_TRUE(b.WaitForErr("; trying again for ")) << b.Err();
  b.Signal(SIGTERM);
  EXPECT_EQ(b.Wait(), 128 + SIGTERM);
  EXPECT_TRUE(Has(b.Err(), "stopped while ")) << b.Err();
}

// Host 1 asks host 2, which never answers, for names that are not in its hosts file.
class SilentNameServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SKIP_WITHOUT_HOSTS();
    hosts_ = std::make_unique<Hosts>(2, Addresses::kIpv4);
    hosts_->Firewall(2, "table inet dns { chain in { type filter hook input priority 0; udp dport 53 drop; }; }");
  }

  // Starts a launcher on host 1 with `script` as its worker.
  std::unique_ptr<Process> Launch(std::vector<std::string> flags, const std::string& script) {
    std::vector<std::string> command = {
        "sh", "-c",
        absl::StrCat("cd ", dir_.path(), " && echo 'hosts: files dns' > nsswitch.conf && ",
                     "echo 'nameserver 10.77.0.2' > resolv.conf && mount --bind nsswitch.conf /etc/nsswitch.conf && ",
                     "mount --bind resolv.conf /etc/resolv.conf && cd - > /dev/null && exec launcher/ddprun \"$@\""),
        "sh"};
    command.insert(command.end(), flags.begin(), flags.end());
    for (const char* word : {"--no-python", "sh", "-c"}) command.push_back(word);
    command.push_back(script);
    return std::make_unique<Process>(hosts_->On(1, std::move(command)));
  }

  TempDir dir_;
  std::unique_ptr<Hosts> hosts_;
};

TEST_F(SilentNameServerTest, Start_NameServerSilent_SignalEndsLauncher) {
  const auto launcher = Launch({"--nnodes=2", "--rdzv-endpoint=nowhere.example"}, kTell);
  // The launcher has blocked its signals; the lookup is next.
  ASSERT_TRUE(Eventually([&] {
    const std::string folder = absl::StrCat("/proc/", launcher->pid());
    if (ReadFile(folder + "/comm") != "ddprun\n") return false;  // still the shell
    const std::string status = ReadFile(folder + "/status");
    const size_t at = status.find("SigBlk:\t");
    return at != std::string::npos && (strtoull(status.c_str() + at + 8, nullptr, 16) >> (SIGTERM - 1) & 1) != 0;
  }));
  launcher->Signal(SIGTERM);
  EXPECT_EQ(launcher->Wait(), 128 + SIGTERM);
  EXPECT_TRUE(Has(launcher->Err(), "stopped while looking up the address of nowhere.example")) << launcher->Err();
}

TEST_F(SilentNameServerTest, TakeOver_NameServerSilent_WorkersKeepRunning) {
  const std::vector<std::string> flags = {"--nnodes=1:2", "--rdzv-endpoint=node1", "--rdzv-id=job",
                                          "--rdzv-conf=last_call_timeout=0.2,heartbeat_timeout=1"};
  const std::string open = dir_.File("open");
  const std::string script = absl::StrCat("echo up; while [ ! -e ", open, " ]; do sleep 0.02; done; echo end");
  const auto first = Launch(flags, script);
  ASSERT_TRUE(first->WaitForOut("up")) << first->Err();
  const auto second = Launch(flags, script);
  ASSERT_TRUE(second->WaitForOut("up")) << second->Err();
  ASSERT_TRUE(Eventually([&] { return Count(first->Out(), "up") == 2; })) << first->Err();
  hosts_->SetHostsFile(1, "");
  first->Signal(SIGKILL);
  EXPECT_TRUE(second->WaitForErr("took over the rendezvous server at node1:29400")) << second->Err();
  Touch(open);
  EXPECT_EQ(second->Wait(), 0) << second->Err();
  EXPECT_FALSE(Has(second->Err(), "cut off from the rendezvous server")) << second->Err();
}

TEST(AddressesTest, Endpoint_WrongHost_NamesEveryAddressTried) {
  SKIP_WITHOUT_HOSTS();
  Hosts hosts(3);
  hosts.AllowOnlyPorts(3, 22, 22);
  hosts.Firewall(3,
                 "table inet refuse { chain in { type filter hook input priority -1; meta nfproto ipv4 tcp dport "
                 "29400 reject with tcp reset; }; }");
  Node a(hosts, 1, "node3", {kSoon});
  EXPECT_EQ(a.Wait(), 1);
  EXPECT_TRUE(Has(a.Err(), "no rendezvous server at node3:29400 for 7s; node1 (")) << a.Err();
  EXPECT_TRUE(Has(a.Err(), "10.77.0.3:29400: connection refused")) << a.Err();
  EXPECT_TRUE(Has(a.Err(), "[fd77::3]:29400: no answer")) << a.Err();
}

TEST(AddressesTest, Endpoint_LocalhostOnSeveralHosts_WarnsThatOthersCannotJoin) {
  SKIP_WITHOUT_HOSTS();
  Hosts hosts(2);
  Node a(hosts, 1, "localhost", {"--rdzv-conf=join_timeout=1"}),
      b(hosts, 2, "localhost", {"--rdzv-conf=join_timeout=1"});
  for (Node* node : {&a, &b}) {
    EXPECT_EQ(node->Wait(), 1);
    EXPECT_TRUE(Has(node->Err(), "127.0.0.1:29400, which no other host can reach")) << node->Err();
  }
}

TEST(AddressesTest, Store_BehindFirewall_OneLineNamesBothEnds) {
  SKIP_WITHOUT_HOSTS();
  Hosts hosts(2, Addresses::kIpv4);
  hosts.AllowOnlyPorts(1, 29400, 29400);
  const std::vector<std::string> first = {"--node-rank=0"}, second = {"--node-rank=1"};
  {
    Node a(hosts, 1, "node1", first, "sleep 1000"), b(hosts, 2, "node1", second, "sleep 1000");
    ASSERT_TRUE(b.WaitForErr("on node1: no answer for 5s; ")) << b.Err();
    EXPECT_TRUE(Has(b.Err(), "node2 (10.77.0.2) can't reach the store of round 1 at 10.77.0.1:")) << b.Err();
    EXPECT_FALSE(Has(a.Err(), "can't reach")) << a.Err();
  }
  hosts.Firewall(1,
                 "table inet refuse { chain in { type filter hook input priority -1; iifname \"eth0\" tcp flags & "
                 "(syn | ack) == syn tcp dport != 29400 reject with tcp reset; }; }");
  Node a(hosts, 1, "node1", first, "sleep 1000"), b(hosts, 2, "node1", second, "sleep 1000");
  EXPECT_TRUE(b.WaitForErr("on node1: can't connect: Connection refused; ")) << b.Err();
}

TEST(AddressesTest, PortRange_StoresOfAllRoundsKeepToItAndLeaveTheServersPort) {
  SKIP_WITHOUT_HOSTS();
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "a library that is linked with AddressSanitizer can't be preloaded into a shell";
#endif
  Hosts hosts(2, Addresses::kIpv4);
  for (int host : {1, 2}) hosts.AllowOnlyPorts(host, 29400, 29402);
  const std::vector<std::string> flags = {"--port-range=29400-29402", "--max-restarts=3"};
  const std::string script = "echo \"port=$MASTER_PORT .\"; test $TORCHELASTIC_RESTART_COUNT = 3";
  Node a(hosts, 1, "node1", flags, script), b(hosts, 2, "node1", flags, script);
  EXPECT_EQ(a.Wait(), 0) << a.Err();
  EXPECT_EQ(b.Wait(), 0) << b.Err();
  const std::string out = a.Out() + b.Out();
  EXPECT_EQ(Count(out, "port=29401 .") + Count(out, "port=29402 ."), Count(out, "port=")) << out;
  EXPECT_GE(Count(out, "port=29401 ."), 1) << out;
  EXPECT_GE(Count(out, "port=29402 ."), 1) << out;
}

}  // namespace
}  // namespace ddprun::testing
