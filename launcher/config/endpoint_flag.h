#ifndef DDPRUN_LAUNCHER_CONFIG_ENDPOINT_FLAG_H_
#define DDPRUN_LAUNCHER_CONFIG_ENDPOINT_FLAG_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/endpoint.h"

namespace ddprun::launcher {

// Parses `host`, `host:port`, `[v6]`, `[v6]:port` or a bare IPv6 address (without a port, as its last colon is
// ambiguous). InvalidArgument: one line, without the flag's name.
absl::StatusOr<Endpoint> ParseEndpoint(absl::string_view text, int default_port);

// Parses a comma-separated list of endpoints. InvalidArgument as above; port 0 is valid only in a list of one.
absl::StatusOr<std::vector<Endpoint>> ParseEndpoints(absl::string_view text, int default_port);

// Parses a host name, an IPv4 address, or an IPv6 address with or without brackets. InvalidArgument as above.
absl::StatusOr<std::string> ParseHost(absl::string_view text);

// True if `host` is an IPv6 address, with or without a %zone.
bool IsIpv6Address(absl::string_view host);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CONFIG_ENDPOINT_FLAG_H_
