#ifndef DDPRUN_LAUNCHER_STORE_LISTENER_H_
#define DDPRUN_LAUNCHER_STORE_LISTENER_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "launcher/io/file_descriptor.h"

namespace ddprun::launcher {

// A listening TCP socket: non-blocking, close-on-exec, with the longest backlog that the kernel allows.
struct Listener {
  UniqueFd fd;
  int port = 0;
};

// Listens on `address` (numeric; empty: all addresses, both IPv6 and IPv4 if available) at the first free port of
// first_port..last_port. Both 0: the kernel chooses a port.
//   kInvalidArgument    not a numeric address, or not a port range
//   kResourceExhausted  every port of the range is in use
//   others              the kernel's error, for example if the address does not belong to this host
absl::StatusOr<Listener> Listen(absl::string_view address, int first_port, int last_port);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_STORE_LISTENER_H_
