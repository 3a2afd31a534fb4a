#ifndef DDPRUN_LAUNCHER_OS_NET_H_
#define DDPRUN_LAUNCHER_OS_NET_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// Which addresses this host has, and which one others can reach it by. All functions are thread-safe. Those that
// resolve a name may wait for a name server for as long as the system's settings allow (often 5 to 30 s when it is
// down): never call them on the loop's thread. No name server is asked about addresses, "localhost" or the own host name.
namespace ddprun::launcher {

struct InterfaceAddress {
  std::string interface;  // "eth0"
  std::string address;    // numeric, without a zone: "192.0.2.7", "fe80::1"
  bool ipv6 = false;
  bool loopback = false;
  bool link_local = false;  // reached only with a zone; of no use to others as it stands
};

// The addresses of all interfaces that are up, in the system's order.
std::vector<InterfaceAddress> LocalAddresses();

// What uname says; never empty.
std::string Hostname();

// The numeric addresses of `host` (a name, or an address with or without brackets), in the order in which they are
// to be tried. NotFound, with the name and the resolver's reason, if there is none.
absl::StatusOr<std::vector<std::string>> ResolveHost(const std::string& host);

// Whether `host` means this host: "localhost", a loopback address, the own host name, an address of one of the
// interfaces or a name that resolves to one, "0.0.0.0" and "::". A name that can't be resolved is not this host.
bool IsLocalHost(const std::string& host);

// The address by which a rendezvous server at host:port, and so the other nodes that use it, can reach this host:
// that of the route to it. Nothing is sent. If `host` is this host under a name of its own that resolves to loopback
// (Debian's 127.0.1.1), other nodes could not use that: then it is the address of the default route, or the first of
// an interface that is not loopback. For "localhost" and loopback addresses it is loopback.
// NotFound: the name has no address. Unavailable: no route to any of its addresses.
absl::StatusOr<std::string> LocalAddressTowards(const std::string& host, uint16_t port);

// An address of this host that others may know it by: that of the default route, else the first of an interface that
// is not loopback; empty if there is none.
std::string OutwardAddress();

// The interface that has this numeric address; empty if none has.
std::string InterfaceOf(const std::string& address);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_OS_NET_H_
