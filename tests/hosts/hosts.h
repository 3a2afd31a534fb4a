#ifndef DDPRUN_TESTS_HOSTS_HOSTS_H_
#define DDPRUN_TESTS_HOSTS_HOSTS_H_

#include <string>
#include <vector>

#include "tests/testing/process.h"

namespace ddprun::testing {

// Set by the main() of tests with hosts: why they are not in namespaces of their own; empty if they are. A test program
// that uses it gets that main() instead of gtest_main's.
extern std::string namespaces_error;

// Hosts on a network, on one machine: network namespaces joined by bridges. Host i of 1 .. count is called node<i>. On
// network n its interface is eth<n>, its addresses 10.<77+n>.0.<i> and fd<77+n>::<i>, with a route to that network and
// no other. At first all are on network 0. Names resolve by the hosts file only, without delay.
//
// A test program that uses it depends on //tests/hosts:support, whose main() moves the whole program into
// new namespaces first (network, mounts, processes; and a user namespace if it is not root). So several can run at
// once, and nothing outlives the program, even if it is killed. Thread-compatible; one object at a time.
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
  // Kills all processes on the hosts.
  ~Hosts();
  Hosts(const Hosts&) = delete;
  Hosts& operator=(const Hosts&) = delete;

  // Returns the command, for Process, that runs `argv` on a host: with its network, host name and hosts file, in the
  // test's working directory.
  std::vector<std::string> On(int host, std::vector<std::string> argv) const;

  static std::string Name(int host);
  static std::string Ipv4(int host, int network = 0);
  static std::string Ipv6(int host, int network = 0);

  // Adds a network with all hosts and returns its number. Its addresses have no names.
  int AddNetwork(Addresses addresses = Addresses::kBoth);

  // Sets /etc/hosts of a host, also for running programs. The lines for localhost are added. Initially it has the
  // addresses and names of all hosts on network 0.
  void SetHostsFile(int host, const std::string& text);

  // Disconnects a host from all networks, and reconnects it.
  void Cut(int host, How how = How::kSilent);
  void Heal(int host, How how = How::kSilent);
  // Silently drops packets between these two; other hosts reach both.
  void Split(int a, int b);
  void Join(int a, int b);
  // Silently drops packets from `from` to `to`, on all networks or one.
  void DropOneWay(int from, int to);
  void HealOneWay(int from, int to);

  // Adds rules in nft's language on a host: "table inet wall { chain in { type filter hook input priority 0; ... }; }".
  void Firewall(int host, const std::string& nft);
  // Accepts TCP connections only to ports first .. last (except loopback); drops others silently.
  void AllowOnlyPorts(int host, int first, int last);

  // Runs a shell command on a host and returns its output; fails the test if it fails. For "ip route add ...".
  std::string Shell(int host, const std::string& command);

  // Reason why hosts are unsupported here; empty if they are supported.
  static std::string Unavailable();

 private:
  std::string HostsFile(int host) const;
  void Bridge(const std::string& nft);
  void Drop(const std::string& table, const std::string& rules);
  void Plug(int host, int network, Addresses addresses);

  const int count_;
  int networks_ = 0;
  std::vector<Addresses> addresses_;  // index: network
  TempDir dir_;
};

#define SKIP_WITHOUT_HOSTS() \
  if (const std::string why = ::ddprun::testing::Hosts::Unavailable(); !why.empty()) GTEST_SKIP() << why

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_HOSTS_HOSTS_H_
