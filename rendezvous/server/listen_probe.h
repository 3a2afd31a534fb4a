#ifndef DDPRUN_RENDEZVOUS_SERVER_LISTEN_PROBE_H_
#define DDPRUN_RENDEZVOUS_SERVER_LISTEN_PROBE_H_

#include "absl/status/status.h"
#include "rendezvous/wire/host_port.h"

// gRPC says only that it can't listen, not why. Thread-safe.
namespace ddprun::rendezvous {

// Tries to bind and listen at `address`, and stops again at once.
//   ALREADY_EXISTS       another program listens there.
//   PERMISSION_DENIED    the port is for the superuser.
//   FAILED_PRECONDITION  the address is not one of this host's.
//   NOT_FOUND            the name has no address.
//   INTERNAL             any other error of the system.
absl::Status ProbeListen(const HostPort& address);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_SERVER_LISTEN_PROBE_H_
