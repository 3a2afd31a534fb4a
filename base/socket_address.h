#ifndef DDPRUN_BASE_SOCKET_ADDRESS_H_
#define DDPRUN_BASE_SOCKET_ADDRESS_H_

#include <sys/socket.h>

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ddprun {

// An IP address and port for socket calls. Value type.
struct SocketAddress {
  sockaddr_storage storage = {};
  socklen_t size = sizeof(sockaddr_storage);

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  int family() const { return storage.ss_family; }
};

// Parses "10.0.0.5", "::1" or "fe80::1%eth0". kInvalidArgument for names: looking them up could block the event loop
// for seconds.
absl::StatusOr<SocketAddress> NumericAddress(absl::string_view text, int port);

// Returns the address without its port. An IPv4 address mapped into IPv6 is shown as IPv4.
std::string AddressText(const SocketAddress& address);

// True for an address of the host's own loopback interface.
bool IsLoopback(const SocketAddress& address);

int PortOf(const SocketAddress& address);

}  // namespace ddprun

#endif  // DDPRUN_BASE_SOCKET_ADDRESS_H_
