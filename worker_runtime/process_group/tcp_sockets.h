#ifndef DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_TCP_SOCKETS_H_
#define DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_TCP_SOCKETS_H_

#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

// The TCP sockets that libraries have opened in this process, found by their addresses. Thread-safe.
namespace ddprun {

// "10.0.0.7:29500" or "[fe80::1]:29500"; IPv4 inside IPv6 is written as IPv4. Empty: not bound, not connected.
struct TcpSocket {
  std::string local;
  std::string remote;
  bool listening = false;
};

using SocketFilter = absl::FunctionRef<bool(const TcpSocket&)>;

// Those for which `filter` returns true, in no order.
std::vector<TcpSocket> FindTcpSockets(SocketFilter filter);

// Shuts down both directions of those for which `filter` returns true and returns how many. They stay open: who is
// blocked on one, on either side, hears of it at once, and its owner closes it. Each socket is held while it is looked
// at, so a descriptor that is closed and used again meanwhile hits nobody else.
int ShutDownTcpSockets(SocketFilter filter);

// Lets the kernel ask the other side of silent connections whether it still exists, and break them off after one minute
// without an answer: a host that vanished is noticed. A process that is only slow or stopped answers through its
// kernel.
void KeepAliveTcpSockets(SocketFilter filter);

// The address of this host from which `host`:`port` would be reached, by the kernel's routes; nothing is sent.
// Errors: Unavailable if `host` has no address or no route leads there.
absl::StatusOr<std::string> LocalAddressTowards(const std::string& host, int port);

// The part of "10.0.0.7:29500" or "[fe80::1]:29500" before the port, without brackets, and the port; -1 if there is
// none.
std::string HostOfAddress(absl::string_view address);
int PortOfAddress(absl::string_view address);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_TCP_SOCKETS_H_
