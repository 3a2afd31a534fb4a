#ifndef DDPRUN_RENDEZVOUS_WIRE_HOST_PORT_H_
#define DDPRUN_RENDEZVOUS_WIRE_HOST_PORT_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ddprun::rendezvous {

struct HostPort {
  std::string host;  // a name or an address without brackets
  int port = 0;
};

// "127.0.0.1:29400", "[::1]:0", "name:29400". INVALID_ARGUMENT: anything else. Thread-safe.
absl::StatusOr<HostPort> ParseHostPort(absl::string_view text);

// The reverse: with brackets around an IPv6 address.
std::string ToString(const HostPort& address);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_WIRE_HOST_PORT_H_
