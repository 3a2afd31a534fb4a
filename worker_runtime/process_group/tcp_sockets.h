#ifndef DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_TCP_SOCKETS_H_
#define DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_TCP_SOCKETS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

// Finds the TCP sockets that libraries have opened in this process, by their addresses. Thread-safe.
namespace ddprun {

// Addresses look like "10.0.0.7:29500" or "[fe80::1]:29500"; IPv4-mapped IPv6 is written as IPv4. Empty: not bound or
// not connected.
struct TcpSocket {
  std::string local;
  std::string remote;
  bool listening = false;

  friend bool operator==(const TcpSocket&, const TcpSocket&) = default;
};

using SocketFilter = absl::FunctionRef<bool(const TcpSocket&)>;

// Returns the sockets for which `filter` returns true, in no particular order.
std::vector<TcpSocket> FindTcpSockets(SocketFilter filter);

// Sockets for which `filter` returns true, and the number of bytes that they have received, or have sent and the other
// side has acknowledged.
struct TcpTraffic {
  std::vector<TcpSocket> sockets;
  uint64_t bytes = 0;
};
TcpTraffic MeasureTcpSockets(SocketFilter filter);

// Shuts down both directions of the sockets for which `filter` returns true, and returns their number. The descriptors
// stay open: blocked calls on either side return at once, and the owner closes them. Each socket is duplicated while it
// is examined, so a descriptor that is closed and reused in the meantime is not affected.
int ShutDownTcpSockets(SocketFilter filter);

// Enables TCP keepalive: idle connections to a host that has vanished fail after one minute. A process that is only
// slow or stopped does not trigger it, because its kernel answers.
void KeepAliveTcpSockets(SocketFilter filter);

// Enables keepalive, and sets the same limit for data that the other host does not acknowledge, which the kernel would
// retransmit for 15 minutes. Not for connections whose receiver may be stopped for longer with a full buffer: those
// would fail too.
void LimitSilenceOfTcpSockets(SocketFilter filter);

// Makes a read that blocks for `limit` fail, for peers whose process may be stopped: their kernel still answers
// keepalives. Does not affect libraries that poll.
void LimitReadsOfTcpSockets(SocketFilter filter, absl::Duration limit);

// Returns the source address of the kernel's route to `host`:`port`. Sends nothing.
// Errors: Unavailable if `host` does not resolve or there is no route.
absl::StatusOr<std::string> LocalAddressTowards(const std::string& host, int port);

// Return the host of "10.0.0.7:29500" or "[fe80::1]:29500", without brackets, and the port; -1 if there is none.
std::string HostOfAddress(absl::string_view address);
int PortOfAddress(absl::string_view address);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_TCP_SOCKETS_H_
