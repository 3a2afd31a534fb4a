#ifndef DDPRUN_RENDEZVOUS_SERVER_LISTEN_H_
#define DDPRUN_RENDEZVOUS_SERVER_LISTEN_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/endpoint.h"

namespace ddprun::rendezvous {

// Sockets that listen: non-blocking, closed on exec, with the longest queue that the kernel allows. Thread-compatible.
struct Listeners {
  Listeners() = default;
  ~Listeners() { Close(); }
  Listeners(Listeners&& other) noexcept { *this = std::move(other); }
  Listeners& operator=(Listeners&& other) noexcept;
  void Close();

  std::vector<int> fds;
  int port = 0;
  bool everywhere = false;  // they take connections to every address of this host
};

// True for 0.0.0.0 and ::.
bool IsEveryAddress(const std::string& host);

// Listens at all addresses of `address`: a name may have several, and 0.0.0.0 and :: both mean every IPv4 and IPv6
// address of this host. Port 0: a port that the kernel chooses. Connections whose peer does not acknowledge what it is
// sent break after `user_timeout`. Thread-safe.
//   ALREADY_EXISTS       another program listens there.
//   PERMISSION_DENIED    the port is for the superuser.
//   FAILED_PRECONDITION  the address is not one of this host's.
//   NOT_FOUND            the name has no address.
//   INTERNAL             any other error of the system.
absl::StatusOr<Listeners> Listen(const Endpoint& address, absl::Duration user_timeout);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_SERVER_LISTEN_H_
