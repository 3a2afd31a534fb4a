#ifndef DDPRUN_LAUNCHER_CORE_ENDPOINT_H_
#define DDPRUN_LAUNCHER_CORE_ENDPOINT_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ddprun::launcher {

// Where a server listens. Nothing is looked up: the host is a name or an address as it was given.
struct Endpoint {
  std::string host;  // IPv6 addresses without brackets
  int port = 0;      // 0: any free one

  // "host:port", "[v6]:port".
  std::string ToString() const;
  friend bool operator==(const Endpoint&, const Endpoint&) = default;
};

// Reads `host`, `host:port`, `[v6]`, `[v6]:port` or a bare IPv6 address (which then has no port, as its last colon
// can't be told from a port's). InvalidArgument: one line, without the flag's name.
absl::StatusOr<Endpoint> ParseEndpoint(absl::string_view text, int default_port);

// Reads a host name, an IPv4 address, or an IPv6 address with or without brackets. InvalidArgument as above.
absl::StatusOr<std::string> ParseHost(absl::string_view text);

// True if `host` is an IPv6 address, with or without a %zone.
bool IsIpv6Address(absl::string_view host);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CORE_ENDPOINT_H_
