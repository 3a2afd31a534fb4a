#ifndef DDPRUN_RENDEZVOUS_WIRE_HOST_PORT_H_
#define DDPRUN_RENDEZVOUS_WIRE_HOST_PORT_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/endpoint.h"

namespace ddprun::rendezvous {

// Parses "127.0.0.1:29400", "[::1]:0" or "name:29400". INVALID_ARGUMENT: anything else. Thread-safe.
absl::StatusOr<Endpoint> ParseHostPort(absl::string_view text);

// Parses a list of them: "a:29400,b:29400". INVALID_ARGUMENT: as above, of the first wrong one, or an empty list.
absl::StatusOr<std::vector<Endpoint>> ParseHostPorts(absl::string_view text);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_WIRE_HOST_PORT_H_
