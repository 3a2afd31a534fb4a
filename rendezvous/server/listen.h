#ifndef DDPRUN_RENDEZVOUS_SERVER_LISTEN_H_
#define DDPRUN_RENDEZVOUS_SERVER_LISTEN_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/endpoint.h"

namespace ddprun::rendezvous {

// Listening sockets: non-blocking, close-on-exec, with the longest queue that the kernel allows. Thread-compatible.
struct Listeners {
  Listeners() = default;
  ~Listeners() { Close(); }
  Listeners(Listeners&& other) noexcept { *this = std::move(other); }
  Listeners& operator=(Listeners&& other) noexcept;
  void Close();

  std::vector<int> fds;
  int port = 0;
  bool everywhere = false;  // they accept connections to every address of this host
};

// True for 0.0.0.0 and ::.
bool IsEveryAddress(const std::string& host);

// Listens at all addresses of `address`: a name may have several, and 0.0.0.0 and :: both mean every IPv4 and IPv6
// address of this host. Port 0 lets the kernel choose. A connection whose peer does not acknowledge sent data breaks
// after `user_timeout`. Thread-safe.
//   ALREADY_EXISTS       address in use.
//   PERMISSION_DENIED    the port is privileged.
//   FAILED_PRECONDITION  not an address of this host.
//   NOT_FOUND            the name does not resolve.
//   INTERNAL             any other system error.
absl::StatusOr<Listeners> Listen(const Endpoint& address, absl::Duration user_timeout);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_SERVER_LISTEN_H_
