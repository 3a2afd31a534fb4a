#ifndef DDPRUN_BASE_ENDPOINT_H_
#define DDPRUN_BASE_ENDPOINT_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

// Addresses of servers as users and peers write them. Thread-safe.
namespace ddprun {

// Address on which a server listens. The host is a name or an address as given; it is not resolved.
struct Endpoint {
  std::string host;  // IPv6 addresses without brackets
  int port = 0;      // 0: any free port

  // "host:port", "[v6]:port".
  std::string ToString() const;
  friend bool operator==(const Endpoint&, const Endpoint&) = default;
};

// Parses `host:port` or `[v6]:port`; with a default port also `host`, `[v6]` and a bare IPv6 address (without a port,
// as its last colon is ambiguous). INVALID_ARGUMENT: one line that quotes the text and says what is wrong with it.
absl::StatusOr<Endpoint> ParseEndpoint(absl::string_view text, std::optional<int> default_port = std::nullopt);

// Parses a comma-separated list of endpoints. INVALID_ARGUMENT as above; port 0 is valid only in a list of one.
absl::StatusOr<std::vector<Endpoint>> ParseEndpoints(absl::string_view text, std::optional<int> default_port);

// Parses a host name, an IPv4 address, or an IPv6 address with or without brackets. INVALID_ARGUMENT as above.
absl::StatusOr<std::string> ParseHost(absl::string_view text);

// True if `host` is an IPv6 address, with or without a %zone.
bool IsIpv6Address(absl::string_view host);

}  // namespace ddprun

#endif  // DDPRUN_BASE_ENDPOINT_H_
