#include "base/loopback.h"

#include <arpa/inet.h>

#include <string>

#include "absl/strings/match.h"

namespace ddprun {

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

}  // namespace ddprun
