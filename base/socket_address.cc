#include "base/socket_address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/loopback.h"

namespace ddprun {
namespace {

const sockaddr_in6& AsIpv6(const SocketAddress& address) {
  return *reinterpret_cast<const sockaddr_in6*>(&address.storage);
}

const sockaddr_in& AsIpv4(const SocketAddress& address) {
  return *reinterpret_cast<const sockaddr_in*>(&address.storage);
}

}  // namespace

absl::StatusOr<SocketAddress> NumericAddress(absl::string_view text, int port) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(std::string(text).c_str(), absl::StrCat(port).c_str(), &hints, &found);
  if (error != 0 || found == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("'", text, "' is not a numeric IP address"));
  }
  SocketAddress address;
  address.size = found->ai_addrlen;
  std::memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
  freeaddrinfo(found);
  return address;
}

std::string AddressText(const SocketAddress& address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address.family() == AF_INET) {
    inet_ntop(AF_INET, &AsIpv4(address).sin_addr, text, sizeof text);
  } else if (address.family() == AF_INET6) {
    inet_ntop(AF_INET6, &AsIpv6(address).sin6_addr, text, sizeof text);
  }
  absl::string_view view = text;
  if (address.family() == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&AsIpv6(address).sin6_addr)) {
    view.remove_prefix(strlen("::ffff:"));
  }
  return std::string(view);
}

bool IsLoopback(const SocketAddress& address) { return IsLoopbackHost(AddressText(address)); }

int PortOf(const SocketAddress& address) {
  return ntohs(address.family() == AF_INET6 ? AsIpv6(address).sin6_port : AsIpv4(address).sin_port);
}

}  // namespace ddprun
