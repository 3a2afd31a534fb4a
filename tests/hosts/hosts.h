#ifndef DDPRUN_TESTS_HOSTS_HOSTS_H_
#define DDPRUN_TESTS_HOSTS_HOSTS_H_

#include <string>
#include <vector>

#include "tests/testing/process.h"

namespace ddprun::testing {

// Hosts on a network, on one machine: network namespaces joined by bridges. Host i of 1 .. count is called node<i>. On
// network n its interface is eth<n>, its addresses 10.<77+n>.0.<i> and fd<77+n>::<i>, with a route to that network and
// no other. At first all are on network 0. A name resolves as the hosts file says, or is unknown at once.
//
// A test program that uses it depends on //tests/hosts (not on gtest_main): its main() moves the whole program into
// namespaces of its own first (network, mounts, processes; with a user namespace where it is not root). So several run
// at once, and nothing outlives the program, killed or not. Thread-compatible; one object at a time.
//
//   SKIP_WITHOUT_HOSTS();
//   Hosts hosts(2);
//   Process server(hosts.On(2, {"/usr/bin/server"}));   // pid() is the server's
//   hosts.Cut(2);
class Hosts {
 public:
  enum class Addresses { kBoth, kIpv4, kIpv6 };
  enum class How {
    kSilent,      // the bridge drops all frames; no end sees anything
    kSwitchPort,  // the cable is pulled out of the switch: the host's interface has no carrier
    kLink,        // the host's own interface is down: it gets errors at once
  };

  explicit Hosts(int count, Addresses addresses = Addresses::kBoth);
  // Kills what still runs on the hosts.
  ~Hosts();
  Hosts(const Hosts&) = delete;
  Hosts& operator=(const Hosts&) = delete;

  // The command that runs `argv` on that host, for Process: on its network, with its host name and its hosts file, in
  // the test's working directory.
  std::vector<std::string> On(int host, std::vector<std::string> argv) const;

  static std::string Name(int host);
  static std::string Ipv4(int host, int network = 0);
  static std::string Ipv6(int host, int network = 0);

  // One more network, with all hosts on it. Returns its number. Its addresses have no names.
  int AddNetwork(Addresses addresses = Addresses::kBoth);

  // The text of /etc/hosts on this host, for programs that run there already as well. The lines for localhost are
  // added. At first: the addresses of all hosts on network 0, with their names.
  void SetHostsFile(int host, const std::string& text);

  // Takes a host off all networks, and puts it back.
  void Cut(int host, How how = How::kSilent);
  void Heal(int host, How how = How::kSilent);
  // Silently drops what these two send each other; others reach both.
  void Split(int a, int b);
  void Join(int a, int b);
  // Silently drops what `from` sends to `to`, on all networks or one.
  void DropOneWay(int from, int to);
  void HealOneWay(int from, int to);

  // Adds rules in nft's language on a host: "table inet wall { chain in { type filter hook input priority 0; ... }; }".
  void Firewall(int host, const std::string& nft);
  // Lets in TCP connections only to ports first .. last (loopback apart); others are dropped silently.
  void AllowOnlyPorts(int host, int first, int last);

  // Runs a shell command on a host and returns what it prints; fails the test if it fails. For "ip route add ...".
  std::string Shell(int host, const std::string& command);

  // Why there can be no hosts here; empty if there can.
  static std::string Unavailable();

 private:
  std::string HostsFile(int host) const;
  void Bridge(const std::string& nft);
  void Drop(const std::string& table, const std::string& rules);
  void Plug(int host, int network, Addresses addresses);

  const int count_;
  int networks_ = 0;
  std::vector<Addresses> addresses_;  // of the networks
  TempDir dir_;
};

#define SKIP_WITHOUT_HOSTS() \
  if (const std::string why = ::ddprun::testing::Hosts::Unavailable(); !why.empty()) GTEST_SKIP() << why

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_HOSTS_HOSTS_H_
