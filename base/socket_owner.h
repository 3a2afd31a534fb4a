#ifndef DDPRUN_BASE_SOCKET_OWNER_H_
#define DDPRUN_BASE_SOCKET_OWNER_H_

#include <sys/types.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/socket_address.h"

namespace ddprun {

// Says which user has the other end of a TCP connection, if that end is a process of this host. Asks the kernel through
// sock_diag(7), one exact request each, or reads /proc/net/tcp where the kernel has no sock_diag. Not thread-safe.
class SocketOwner {
 public:
  SocketOwner();
  ~SocketOwner();
  SocketOwner(const SocketOwner&) = delete;
  SocketOwner& operator=(const SocketOwner&) = delete;

  // Of the socket that is bound to `peer` and connected to `own`.
  //   kNotFound            no socket of this network namespace: the peer is another host
  //   kFailedPrecondition  of this host, but closed by now: the kernel forgets whose it was
  //   kUnavailable         the kernel does not say
  absl::StatusOr<uid_t> UserOf(const SocketAddress& peer, const SocketAddress& own);

  // The second way alone.
  static absl::StatusOr<uid_t> UserByProc(const SocketAddress& peer, const SocketAddress& own);

 private:
  int netlink_;  // -1: no sock_diag
};

}  // namespace ddprun

#endif  // DDPRUN_BASE_SOCKET_OWNER_H_
