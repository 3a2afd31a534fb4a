#ifndef DDPRUN_BASE_GRPC_CAUSE_H_
#define DDPRUN_BASE_GRPC_CAUSE_H_

#include "absl/strings/string_view.h"

namespace ddprun {

// PURE: extracts the cause from the message of a gRPC status: "Connection refused" from "failed to connect to all
// addresses; last error: UNKNOWN: ipv4:127.0.0.1:1: Failed to connect to remote host: Connection refused". Returns a
// part of `message`, or all of it if it has no such wrapping.
absl::string_view GrpcCause(absl::string_view message);

}  // namespace ddprun

#endif  // DDPRUN_BASE_GRPC_CAUSE_H_
