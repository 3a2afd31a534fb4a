#ifndef DDPRUN_BASE_SOCKET_ADDRESS_H_
#define DDPRUN_BASE_SOCKET_ADDRESS_H_

#include <sys/socket.h>

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ddprun {

// An IP address with a port, as the socket calls want it. Value type.
struct SocketAddress {
  sockaddr_storage storage = {};
  socklen_t size = sizeof(sockaddr_storage);

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  int family() const { return storage.ss_family; }
};

// Reads "10.0.0.5", "::1" or "fe80::1%eth0". Names are refused (kInvalidArgument): nothing here asks a DNS server,
// which could block the loop for seconds.
absl::StatusOr<SocketAddress> NumericAddress(absl::string_view text, int port);

// The address without its port; an IPv4 address that came in over an IPv6 socket reads like any IPv4 address.
std::string AddressText(const SocketAddress& address);

// Whether it is an address of the host's own loopback interface.
bool IsLoopback(const SocketAddress& address);

int PortOf(const SocketAddress& address);

}  // namespace ddprun

#endif  // DDPRUN_BASE_SOCKET_ADDRESS_H_
