// libddprun_ports.so: restricts the ports that a worker listens on to --port-range. Gloo, NCCL and others bind port 0
// and let the kernel choose, which no firewall can know in advance. The launcher preloads this library into workers
// when a range is given; it replaces bind() of port 0, and listen() of an unbound socket, with a bind to a free port of
// the range. All other calls are passed through unchanged.
//
// Thread-safe and, having no state but a counter, safe across fork. Needs only the C library. Statically linked
// programs and direct system calls are not covered.
#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "worker_contract/environment.h"

namespace {

using Bind = int (*)(int, const sockaddr*, socklen_t);
using Listen = int (*)(int, int);

Bind next_bind = nullptr;
Listen next_listen = nullptr;
unsigned first_port = 0;
unsigned ports = 0;          // 0: no range, no effect
unsigned reserved_port = 0;  // in the range, but used by the rendezvous server
unsigned next_offset = 0;    // makes the threads of a process try different ports first
unsigned said = 0;

// Before main(), or earlier if another library's constructor needs a port.
__attribute__((constructor)) void Load() {
  if (next_listen != nullptr) return;
  const char* const range = getenv(ddprun::worker_contract::kPortRange);
  unsigned last = 0;
  if (range != nullptr && sscanf(range, "%u-%u except %u", &first_port, &last, &reserved_port) >= 2 &&
      first_port >= 1 && last <= 65535 && first_port <= last) {
    ports = last - first_port + 1;
  }
  next_bind = reinterpret_cast<Bind>(dlsym(RTLD_NEXT, "bind"));
  next_listen = reinterpret_cast<Listen>(dlsym(RTLD_NEXT, "listen"));
}

// Value of a socket option, 0 on error. Preserves errno.
int GetOption(int fd, int level, int name) {
  const int before = errno;
  int value = 0;
  socklen_t size = sizeof value;
  if (getsockopt(fd, level, name, &value, &size) != 0) value = 0;
  errno = before;
  return value;
}

void SetOption(int fd, int name, int value) { setsockopt(fd, SOL_SOCKET, name, &value, sizeof value); }

bool IsTcp(int fd) {
  return GetOption(fd, SOL_SOCKET, SO_TYPE) == SOCK_STREAM && GetOption(fd, SOL_SOCKET, SO_PROTOCOL) == IPPROTO_TCP;
}

// Location of the port in an address; null if it is not an IP address.
in_port_t* PortIn(sockaddr_storage* address, socklen_t size) {
  if (address->ss_family == AF_INET && size >= sizeof(sockaddr_in)) {
    return &reinterpret_cast<sockaddr_in*>(address)->sin_port;
  }
  // The last field, the scope, may be missing.
  if (address->ss_family == AF_INET6 && size >= sizeof(sockaddr_in6) - sizeof(uint32_t)) {
    return &reinterpret_cast<sockaddr_in6*>(address)->sin6_port;
  }
  return nullptr;
}

// Tries each port of the range once.
int BindAnyOf(int fd, sockaddr_storage* address, socklen_t size, in_port_t* port) {
  const unsigned start = static_cast<unsigned>(getpid()) * 61 + __atomic_fetch_add(&next_offset, 1, __ATOMIC_RELAXED);
  for (unsigned i = 0; i < ports; ++i) {
    const unsigned number = first_port + (start + i) % ports;
    if (number == reserved_port) continue;
    *port = htons(static_cast<in_port_t>(number));
    if (next_bind(fd, reinterpret_cast<sockaddr*>(address), size) == 0) return 0;
    if (errno != EADDRINUSE) return -1;
  }
  errno = EADDRINUSE;
  return -1;
}

int BindInRange(int fd, sockaddr_storage* address, socklen_t size, in_port_t* port) {
  const int before = errno;
  // With these options set, two sockets may be bound to one port until the first of them listens. The kernel's own
  // choice avoids such ports, and so does this code; ports with lingering connections are used only if no others are
  // free.
  const int reuse_address = GetOption(fd, SOL_SOCKET, SO_REUSEADDR);
  const int reuse_port = GetOption(fd, SOL_SOCKET, SO_REUSEPORT);
  SetOption(fd, SO_REUSEADDR, 0);
  SetOption(fd, SO_REUSEPORT, 0);
  int result = BindAnyOf(fd, address, size, port);
  int error = errno;
  SetOption(fd, SO_REUSEADDR, reuse_address);
  if (result != 0 && error == EADDRINUSE && reuse_address != 0) {
    result = BindAnyOf(fd, address, size, port);
    error = errno;
  }
  SetOption(fd, SO_REUSEPORT, reuse_port);
  if (result != 0 && error == EADDRINUSE && __atomic_exchange_n(&said, 1, __ATOMIC_RELAXED) == 0) {
    char text[160];
    const int length = snprintf(text, sizeof text, "ddprun: process %d: no free port in %u-%u; widen --port-range\n",
                                static_cast<int>(getpid()), first_port, first_port + ports - 1);
    (void)!write(2, text, static_cast<size_t>(length));
  }
  errno = result == 0 ? before : error;
  return result;
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) int bind(int fd, const sockaddr* address, socklen_t size) noexcept {
  Load();
  sockaddr_storage copy;
  if (ports == 0 || address == nullptr || size > sizeof copy || !IsTcp(fd)) return next_bind(fd, address, size);
  memcpy(&copy, address, size);
  in_port_t* const port = PortIn(&copy, size);
  // IP_BIND_ADDRESS_NO_PORT: only the source address of an outgoing connection is requested.
  if (port == nullptr || *port != 0 || GetOption(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT) != 0) {
    return next_bind(fd, address, size);
  }
  return BindInRange(fd, &copy, size, port);
}

__attribute__((visibility("default"))) int listen(int fd, int backlog) noexcept {
  Load();
  sockaddr_storage address;
  socklen_t size = sizeof address;
  if (ports != 0 && IsTcp(fd) && getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0) {
    in_port_t* const port = PortIn(&address, size);
    if (port != nullptr && *port == 0 && BindInRange(fd, &address, size, port) != 0) return -1;
  }
  return next_listen(fd, backlog);
}

}  // extern "C"
