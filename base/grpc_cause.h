#ifndef DDPRUN_BASE_GRPC_CAUSE_H_
#define DDPRUN_BASE_GRPC_CAUSE_H_

#include "absl/strings/string_view.h"

namespace ddprun {

// PURE: the cause within the message of a gRPC status, without what gRPC wraps around it: "Connection refused" of
// "failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:1: Failed to connect to remote host:
// Connection refused". A part of `message`; all of it if nothing is wrapped around it.
absl::string_view GrpcCause(absl::string_view message);

}  // namespace ddprun

#endif  // DDPRUN_BASE_GRPC_CAUSE_H_
