#include "base/socket_address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

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

bool IsLocalhostName(absl::string_view host) {
  return absl::EqualsIgnoreCase(host, "localhost") || absl::EqualsIgnoreCase(host, "localhost.localdomain") ||
         absl::EndsWithIgnoreCase(host, ".localhost");
}

bool IsLoopbackAddress(absl::string_view address) {
  const std::string text(address);
  in_addr v4;
  if (inet_pton(AF_INET, text.c_str(), &v4) == 1) return ntohl(v4.s_addr) >> 24 == 127;
  in6_addr v6;
  if (inet_pton(AF_INET6, text.c_str(), &v6) != 1) return false;
  return IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127);
}

bool IsLoopbackHost(absl::string_view host) {
  if (IsLocalhostName(host)) return true;
  if (absl::StartsWith(host, "[") && absl::EndsWith(host, "]")) host = host.substr(1, host.size() - 2);
  return IsLoopbackAddress(host);
}

std::optional<UnixAddress> UnixAddress::Parse(absl::string_view text) {
  UnixAddress result;
  // Leave one byte for the null byte that ends a path.
  if (text.size() < 2 || text.size() >= sizeof result.address_.sun_path) return std::nullopt;
  if (text[0] != '/' && text[0] != '@') return std::nullopt;
  result.address_.sun_family = AF_UNIX;
  std::copy(text.begin(), text.end(), result.address_.sun_path);
  // An abstract name follows a null byte, and its length is given by the size.
  if (text[0] == '@') result.address_.sun_path[0] = '\0';
  result.size_ = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + text.size());
  return result;
}

}  // namespace ddprun
