#include "rendezvous/server/listen.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ddprun::rendezvous {
namespace {

absl::Status FromErrno(int error, const std::string& address) {
  switch (error) {
    case EADDRINUSE: return absl::AlreadyExistsError(absl::StrCat("can't listen on ", address, ": address in use"));
    case EACCES: return absl::PermissionDeniedError(absl::StrCat("can't listen on ", address, ": permission denied"));
    case EADDRNOTAVAIL:
      return absl::FailedPreconditionError(absl::StrCat("can't listen on ", address, ": not an address of this host"));
    default: return absl::InternalError(absl::StrCat("can't listen on ", address, ": ", strerror(error)));
  }
}

// Errors for an address of a family that the host does not have.
bool IsAbsent(int error) { return error == EAFNOSUPPORT || error == EADDRNOTAVAIL; }

void SetOption(int fd, int level, int name, int value) { setsockopt(fd, level, name, &value, sizeof value); }

// The port field of an address.
in_port_t* PortOf(sockaddr* address) {
  return address->sa_family == AF_INET6 ? &reinterpret_cast<sockaddr_in6*>(address)->sin6_port
                                        : &reinterpret_cast<sockaddr_in*>(address)->sin_port;
}

// Returns 0 or an errno. Accepted connections inherit the options.
int ListenAt(const sockaddr* address, socklen_t size, absl::Duration user_timeout, Listeners* listeners) {
  const int fd = socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return errno;
  listeners->fds.push_back(fd);
  sockaddr_storage bound = {};
  socklen_t bound_size = sizeof bound;
  memcpy(&bound, address, size);
  auto* const where = reinterpret_cast<sockaddr*>(&bound);
  *PortOf(where) = htons(listeners->port);  // the port of the first address
  SetOption(fd, SOL_SOCKET, SO_REUSEADDR, 1);
  SetOption(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  SetOption(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(absl::ToInt64Milliseconds(user_timeout)));
  if (address->sa_family == AF_INET6) SetOption(fd, IPPROTO_IPV6, IPV6_V6ONLY, 0);
  if (bind(fd, where, size) == 0 && listen(fd, SOMAXCONN) == 0 && getsockname(fd, where, &bound_size) == 0) {
    listeners->port = ntohs(*PortOf(where));
    return 0;
  }
  const int error = errno;
  close(fd);
  listeners->fds.pop_back();
  return error;
}

int ListenEverywhere(absl::Duration user_timeout, Listeners* listeners) {
  sockaddr_in6 ipv6 = {};
  ipv6.sin6_family = AF_INET6;
  const int error = ListenAt(reinterpret_cast<sockaddr*>(&ipv6), sizeof ipv6, user_timeout, listeners);
  if (!IsAbsent(error)) return error;
  sockaddr_in ipv4 = {};
  ipv4.sin_family = AF_INET;
  return ListenAt(reinterpret_cast<sockaddr*>(&ipv4), sizeof ipv4, user_timeout, listeners);
}

}  // namespace

bool IsEveryAddress(const std::string& host) { return host == "0.0.0.0" || host == "::"; }

Listeners& Listeners::operator=(Listeners&& other) noexcept {
  Close();
  fds = std::exchange(other.fds, {});
  port = other.port;
  everywhere = other.everywhere;
  return *this;
}

void Listeners::Close() {
  for (const int fd : fds) close(fd);
  fds.clear();
}

absl::StatusOr<Listeners> Listen(const Endpoint& address, absl::Duration user_timeout) {
  Listeners listeners;
  listeners.port = address.port;
  if (IsEveryAddress(address.host)) {
    const int error = ListenEverywhere(user_timeout, &listeners);
    if (error != 0) return FromErrno(error, address.ToString());
    listeners.everywhere = true;
    return listeners;
  }
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int failure = getaddrinfo(address.host.c_str(), "0", &hints, &found);
  if (failure != 0) {
    return absl::NotFoundError(absl::StrCat("can't listen on ", address.ToString(), ": ", gai_strerror(failure)));
  }
  int fatal = 0, absent = 0;
  for (const addrinfo* where = found; where != nullptr && fatal == 0; where = where->ai_next) {
    const int error = ListenAt(where->ai_addr, where->ai_addrlen, user_timeout, &listeners);
    (IsAbsent(error) ? absent : fatal) = error;
  }
  freeaddrinfo(found);
  if (fatal == 0 && listeners.fds.empty()) fatal = absent;
  if (fatal != 0) return FromErrno(fatal, address.ToString());
  return listeners;
}

}  // namespace ddprun::rendezvous
