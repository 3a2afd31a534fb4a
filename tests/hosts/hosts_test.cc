// Tests of the harness.
#include "tests/hosts/hosts.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace ddprun::testing {
namespace {

constexpr char kShort[] = "0.5";  // seconds, for packets that should be dropped

// True if TCP connections from a host reach an address. Uses bash, which needs no other program.
bool Reaches(const Hosts& hosts, int from, const std::string& address, int port, const char* seconds = "60") {
  const std::string script = absl::StrCat("exec 3<>/dev/tcp/", address, "/", port);
  Process probe(hosts.On(from, {"timeout", seconds, "bash", "-c", script}));
  return probe.Wait() == 0;
}

// Listens on every address of a host.
std::vector<std::string> Listener(const Hosts& hosts, int host, int port) {
  return hosts.On(host, {"python3", "-c",
                         absl::StrCat("import socket,time\n", "s=socket.socket(socket.AF_INET6)\n",
                                      "s.setsockopt(socket.IPPROTO_IPV6,socket.IPV6_V6ONLY,0)\n", "s.bind(('::',", port,
                                      "));s.listen(99)\nprint('ready',flush=True)\ntime.sleep(1000)")});
}

TEST(HostsTest, On_HasItsOwnNameAddressesAndPid) {
  SKIP_WITHOUT_HOSTS();
  Hosts hosts(2);
  Process process(hosts.On(2, {"sh", "-c", "hostname; echo $$; getent ahosts node1; getent hosts elsewhere"}));
  process.Wait();
  EXPECT_TRUE(absl::string_view(process.Out()).find(absl::StrCat("node2\n", process.pid(), "\n")) == 0)
      << process.pid() << process.Out() << process.Err();
  EXPECT_NE(process.Out().find("10.77.0.1 "), std::string::npos) << process.Out();
  EXPECT_NE(process.Out().find("fd77::1 "), std::string::npos) << process.Out();
}

TEST(HostsTest, Cuts_AreSeenAndHealed) {
  SKIP_WITHOUT_HOSTS();
  Hosts hosts(3);
  Process second(Listener(hosts, 2, 5000)), third(Listener(hosts, 3, 5000));
  ASSERT_TRUE(second.WaitForOut("ready")) << second.Err();
  ASSERT_TRUE(third.WaitForOut("ready")) << third.Err();
  for (Hosts::How how : {Hosts::How::kSilent, Hosts::How::kSwitchPort, Hosts::How::kLink}) {
    EXPECT_TRUE(Reaches(hosts, 1, Hosts::Ipv4(2), 5000));
    EXPECT_TRUE(Reaches(hosts, 1, Hosts::Ipv6(2), 5000));
    hosts.Cut(2, how);
    EXPECT_FALSE(Reaches(hosts, 1, Hosts::Ipv4(2), 5000, kShort));
    EXPECT_FALSE(Reaches(hosts, 1, Hosts::Ipv6(2), 5000, kShort));
    EXPECT_TRUE(Reaches(hosts, 1, Hosts::Ipv4(3), 5000));
    hosts.Heal(2, how);
  }
  hosts.Split(1, 2);
  EXPECT_FALSE(Reaches(hosts, 1, Hosts::Ipv4(2), 5000, kShort));
  EXPECT_TRUE(Reaches(hosts, 3, Hosts::Ipv4(2), 5000));
  hosts.Join(1, 2);
  hosts.AllowOnlyPorts(2, 5001, 6000);
  EXPECT_FALSE(Reaches(hosts, 1, Hosts::Ipv4(2), 5000, kShort));
  EXPECT_TRUE(Reaches(hosts, 1, Hosts::Ipv4(3), 5000));
}

TEST(HostsTest, Networks_AreApart) {
  SKIP_WITHOUT_HOSTS();
  Hosts hosts(2, Hosts::Addresses::kIpv4);
  const int fast = hosts.AddNetwork(Hosts::Addresses::kIpv6);
  hosts.SetHostsFile(1, absl::StrCat(Hosts::Ipv6(2, fast), " fast2\n"));
  Process second(Listener(hosts, 2, 5000));
  ASSERT_TRUE(second.WaitForOut("ready")) << second.Err();
  EXPECT_TRUE(Reaches(hosts, 1, Hosts::Ipv4(2), 5000));
  EXPECT_TRUE(Reaches(hosts, 1, Hosts::Ipv6(2, fast), 5000));
  EXPECT_TRUE(Reaches(hosts, 1, "fast2", 5000));
  EXPECT_FALSE(Reaches(hosts, 1, "node2", 5000, kShort));
  EXPECT_FALSE(Reaches(hosts, 1, Hosts::Ipv6(2), 5000, kShort));
}

}  // namespace
}  // namespace ddprun::testing
