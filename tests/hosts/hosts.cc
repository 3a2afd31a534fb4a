#include "tests/hosts/hosts.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "absl/strings/str_cat.h"

namespace ddprun::testing {
namespace {

constexpr char kSwitch[] = "switch";
constexpr char kPath[] = "/usr/sbin:/usr/bin:/sbin:/bin";

bool Has4(Hosts::Addresses addresses) { return addresses != Hosts::Addresses::kIpv6; }
bool Has6(Hosts::Addresses addresses) { return addresses != Hosts::Addresses::kIpv4; }

// The bridge's end of a host's link.
std::string Port(int host, int network) { return absl::StrCat("h", host, "n", network); }
// All such ends, for nft.
std::string Ports(int host) { return absl::StrCat("\"h", host, "n*\""); }

std::string RunShell(const std::string& script) {
  Process shell({"/bin/sh", "-ec", script}, {{"PATH", kPath}});
  EXPECT_EQ(shell.Wait(), 0) << script << "\n" << shell.Out() << shell.Err();
  return shell.Out();
}

bool Exists(const std::string& program) {
  for (const char* folder : {"/usr/sbin/", "/usr/bin/", "/sbin/", "/bin/"}) {
    if (access((folder + program).c_str(), X_OK) == 0) return true;
  }
  return false;
}

}  // namespace

std::string Hosts::Unavailable() {
  if (!namespaces_error.empty()) return absl::StrCat("no namespaces here: ", namespaces_error);
  for (const char* program : {"ip", "nft", "nsenter", "unshare"}) {
    if (!Exists(program)) return absl::StrCat(program, " is not installed");
  }
  static const std::string reason = [] {
    Process probe({"/bin/sh", "-ec", "ip netns add probe; ip netns del probe; nft list tables"}, {{"PATH", kPath}});
    return probe.Wait() == 0 ? "" : absl::StrCat("no network namespaces or nft here: ", probe.Err());
  }();
  return reason;
}

Hosts::Hosts(int count, Addresses addresses) : count_(count) {
  std::string script = absl::StrCat("ip netns add ", kSwitch, "\n");
  for (int host = 1; host <= count_; ++host) {
    absl::StrAppend(&script, "ip netns add ", Name(host), "; ip -n ", Name(host), " link set lo up\n");
  }
  RunShell(script);
  std::ofstream(dir_.File("nsswitch.conf")) << "passwd: files\ngroup: files\nhosts: files\n";
  AddNetwork(addresses);
  std::string names;
  for (int host = 1; host <= count_; ++host) {
    if (Has4(addresses)) absl::StrAppend(&names, Ipv4(host), " ", Name(host), "\n");
    if (Has6(addresses)) absl::StrAppend(&names, Ipv6(host), " ", Name(host), "\n");
  }
  for (int host = 1; host <= count_; ++host) SetHostsFile(host, names);
}

Hosts::~Hosts() {
  std::string script;
  for (int host = 1; host <= count_; ++host) {
    // Processes may have started others before they were killed.
    absl::StrAppend(&script, "while pids=$(ip netns pids ", Name(host), ") && [ -n \"$pids\" ]; do ",
                    "kill -9 $pids 2>/dev/null || true; sleep 0.01; done; ip netns del ", Name(host), "\n");
  }
  RunShell(absl::StrCat(script, "ip netns del ", kSwitch));
}

std::string Hosts::Name(int host) { return absl::StrCat("node", host); }
std::string Hosts::Ipv4(int host, int network) { return absl::StrCat("10.", 77 + network, ".0.", host); }
std::string Hosts::Ipv6(int host, int network) { return absl::StrCat("fd", 77 + network, "::", host); }
std::string Hosts::HostsFile(int host) const { return dir_.File(absl::StrCat("hosts", host)); }

std::vector<std::string> Hosts::On(int host, std::vector<std::string> argv) const {
  const std::string as_host =
      absl::StrCat("hostname ", Name(host), " && mount --bind ", HostsFile(host), " /etc/hosts && mount --bind ",
                   dir_.File("nsswitch.conf"), " /etc/nsswitch.conf && exec \"$@\"");
  std::vector<std::string> command = {"/usr/bin/nsenter",
                                      absl::StrCat("--net=/run/netns/", Name(host)),
                                      "--",
                                      "unshare",
                                      "--mount",
                                      "--uts",
                                      "--propagation",
                                      "private",
                                      "--",
                                      "sh",
                                      "-c",
                                      as_host,
                                      "sh"};
  command.insert(command.end(), argv.begin(), argv.end());
  return command;
}

int Hosts::AddNetwork(Addresses addresses) {
  const int network = networks_++;
  addresses_.push_back(addresses);
  // Bridges forward without delay and have no addresses.
  RunShell(absl::StrCat("ip -n ", kSwitch, " link add br", network, " type bridge forward_delay 0\n", "ip -n ", kSwitch,
                        " link set br", network, " up"));
  for (int host = 1; host <= count_; ++host) Plug(host, network, addresses);
  return network;
}

void Hosts::Plug(int host, int network, Addresses addresses) {
  const std::string name = Name(host), port = Port(host, network);
  std::string script =
      absl::StrCat("ip -n ", kSwitch, " link add ", port, " type veth peer name eth", network, " netns ", name,
                   "; ip -n ", kSwitch, " link set ", port, " master br", network, " up\n");
  // nodad: duplicate address detection would block an IPv6 address for a second or two. keep_addr_on_down: addresses
  // return with the link.
  absl::StrAppend(&script, "ip netns exec ", name, " sysctl -qw net.ipv6.conf.eth", network, ".accept_dad=0 ",
                  "net.ipv6.conf.eth", network, ".keep_addr_on_down=1\n", "ip -n ", name, " link set eth", network,
                  " up\n");
  if (Has4(addresses)) {
    absl::StrAppend(&script, "ip -n ", name, " addr add ", Ipv4(host, network), "/24 dev eth", network, "\n");
  }
  if (Has6(addresses)) {
    absl::StrAppend(&script, "ip -n ", name, " addr add ", Ipv6(host, network), "/64 dev eth", network, " nodad\n");
  }
  RunShell(script);
}

void Hosts::SetHostsFile(int host, const std::string& text) {
  std::ofstream(HostsFile(host)) << "127.0.0.1 localhost\n::1 localhost ip6-localhost\n" << text;
}

void Hosts::Bridge(const std::string& nft) {
  RunShell(absl::StrCat("ip netns exec ", kSwitch, " nft -f - <<'EOF'\n", nft, "\nEOF"));
}

void Hosts::Drop(const std::string& table, const std::string& rules) {
  Bridge(absl::StrCat("table bridge ", table, " { chain f { type filter hook forward priority 0; ", rules, " }; }"));
}

void Hosts::Cut(int host, How how) {
  if (how == How::kSilent) {
    Drop(absl::StrCat("cut", host), absl::StrCat("iifname ", Ports(host), " drop; oifname ", Ports(host), " drop;"));
    return;
  }
  for (int network = 0; network < networks_; ++network) {
    RunShell(how == How::kSwitchPort ? absl::StrCat("ip -n ", kSwitch, " link set ", Port(host, network), " down")
                                     : absl::StrCat("ip -n ", Name(host), " link set eth", network, " down"));
  }
}

void Hosts::Heal(int host, How how) {
  if (how == How::kSilent) return Bridge(absl::StrCat("delete table bridge cut", host));
  for (int network = 0; network < networks_; ++network) {
    RunShell(how == How::kSwitchPort ? absl::StrCat("ip -n ", kSwitch, " link set ", Port(host, network), " up")
                                     : absl::StrCat("ip -n ", Name(host), " link set eth", network, " up"));
  }
}

void Hosts::Split(int a, int b) {
  DropOneWay(a, b);
  DropOneWay(b, a);
}

void Hosts::Join(int a, int b) {
  HealOneWay(a, b);
  HealOneWay(b, a);
}

void Hosts::DropOneWay(int from, int to) {
  Drop(absl::StrCat("way", from, "to", to), absl::StrCat("iifname ", Ports(from), " oifname ", Ports(to), " drop;"));
}

void Hosts::HealOneWay(int from, int to) { Bridge(absl::StrCat("delete table bridge way", from, "to", to)); }

void Hosts::Firewall(int host, const std::string& nft) {
  RunShell(absl::StrCat("ip netns exec ", Name(host), " nft -f - <<'EOF'\n", nft, "\nEOF"));
}

void Hosts::AllowOnlyPorts(int host, int first, int last) {
  Firewall(host, absl::StrCat("table inet ports { chain in { type filter hook input priority 0; ",
                              "iifname \"lo\" accept; tcp flags & (syn | ack) == syn tcp dport != ", first, "-", last,
                              " drop; }; }"));
}

std::string Hosts::Shell(int host, const std::string& command) {
  Process process(On(host, {"sh", "-ec", command}), {{"PATH", kPath}});
  EXPECT_EQ(process.Wait(), 0) << command << "\n" << process.Err();
  return process.Out();
}

}  // namespace ddprun::testing
