#ifndef DDPRUN_BASE_SOCKET_OWNER_H_
#define DDPRUN_BASE_SOCKET_OWNER_H_

#include <sys/types.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/socket_address.h"

namespace ddprun {

// True for root and for the user of this process: the users whose processes may command it.
bool IsRootOrOwnUser(uid_t user);

// Determines which user owns the other end of a TCP connection, if that end is a process on this host. Queries the
// kernel through sock_diag(7), one exact request per connection, or reads /proc/net/tcp if the kernel has no sock_diag.
// Not thread-safe.
class SocketOwner {
 public:
  SocketOwner();
  ~SocketOwner();
  SocketOwner(const SocketOwner&) = delete;
  SocketOwner& operator=(const SocketOwner&) = delete;

  // Returns the owner of the socket that is bound to `peer` and connected to `own`.
  //   kNotFound            no such socket in this network namespace: the peer is on another host
  //   kFailedPrecondition  a socket of this host that has been closed, so that the kernel no longer knows its owner
  //   kUnavailable         the kernel does not provide the owner
  absl::StatusOr<uid_t> UserOf(const SocketAddress& peer, const SocketAddress& own);

  // Like UserOf, but reads only /proc/net/tcp.
  static absl::StatusOr<uid_t> UserByProc(const SocketAddress& peer, const SocketAddress& own);

 private:
  int netlink_;  // -1: no sock_diag
};

}  // namespace ddprun

#endif  // DDPRUN_BASE_SOCKET_OWNER_H_
