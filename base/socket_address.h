#ifndef DDPRUN_BASE_SOCKET_ADDRESS_H_
#define DDPRUN_BASE_SOCKET_ADDRESS_H_

#include <sys/socket.h>
#include <sys/un.h>

#include <optional>
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

// Recognizes names and addresses that always mean the host itself. Pure: nothing is looked up.
// True for "localhost", "localhost.localdomain", "x.localhost" (RFC 6761: never sent to a name server), in any case.
bool IsLocalhostName(absl::string_view host);

// True for an address in 127.0.0.0/8, ::1 or ::ffff:127.0.0.0/104, without brackets.
bool IsLoopbackAddress(absl::string_view address);

// True for a localhost name, or a loopback address with or without brackets.
bool IsLoopbackHost(absl::string_view host);

// Address of a Unix socket for bind, connect and sendto.
class UnixAddress {
 public:
  // Parses "/path", or "@name" for a socket in the abstract namespace, which has no file. nullopt: neither, or too
  // long.
  static std::optional<UnixAddress> Parse(absl::string_view text);

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address_); }
  socklen_t size() const { return size_; }

 private:
  UnixAddress() = default;

  sockaddr_un address_ = {};
  socklen_t size_ = 0;
};

}  // namespace ddprun

#endif  // DDPRUN_BASE_SOCKET_ADDRESS_H_
