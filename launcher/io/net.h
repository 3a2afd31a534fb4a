#ifndef DDPRUN_LAUNCHER_IO_NET_H_
#define DDPRUN_LAUNCHER_IO_NET_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// Addresses of this host, including the one at which others can reach it. All functions are thread-safe. Functions that
// resolve a name may block for as long as the system's resolver allows (often 5 to 30 s if the name server is down):
// never call them on the loop's thread. Addresses, "localhost" and the host's own name are not sent to a name server.
namespace ddprun::launcher {

struct InterfaceAddress {
  std::string interface;  // "eth0"
  std::string address;    // numeric, without a zone: "192.0.2.7", "fe80::1"
  bool ipv6 = false;
  bool loopback = false;
  bool link_local = false;  // needs a zone, so other hosts can't use it as is
};

// Addresses of all interfaces that are up, in the system's order.
std::vector<InterfaceAddress> LocalAddresses();

// Numeric addresses of `host` (a name, or an address with or without brackets), in order of preference. NotFound, with
// the name and the resolver's reason, if there is none.
absl::StatusOr<std::vector<std::string>> ResolveHost(const std::string& host);

// True if `host` is this host: "localhost", a loopback address, its own name, an address of one of its interfaces or a
// name that resolves to one, "0.0.0.0" or "::". A name that does not resolve is not this host.
bool IsLocalHost(const std::string& host);

// Address at which a rendezvous server at host:port, and thus the other nodes, can reach this host: the source address
// of the route to it. Sends nothing. If `host` is this host's own name and resolves to loopback (Debian's 127.0.1.1),
// which other nodes can't use, returns the address of the default route, or the first address of a non-loopback
// interface. For "localhost" and loopback addresses returns loopback. NotFound: the name does not resolve. Unavailable:
// no route to any of its addresses.
absl::StatusOr<std::string> LocalAddressTowards(const std::string& host, uint16_t port);

// Address of this host's default route, else the first address of a non-loopback interface; empty if there is none.
std::string OutwardAddress();

// Name of the interface with this numeric address; empty if there is none.
std::string InterfaceOf(const std::string& address);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_IO_NET_H_
