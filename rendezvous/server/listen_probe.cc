#include "rendezvous/server/listen_probe.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

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

int TryListen(const addrinfo& where) {
  const int fd = socket(where.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return errno;
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const bool works = bind(fd, where.ai_addr, where.ai_addrlen) == 0 && listen(fd, 1) == 0;
  const int error = works ? 0 : errno;
  close(fd);
  return error;
}

}  // namespace

absl::Status ProbeListen(const HostPort& address) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int failure = getaddrinfo(address.host.c_str(), absl::StrCat(address.port).c_str(), &hints, &found);
  if (failure != 0) {
    return absl::NotFoundError(absl::StrCat("can't listen on ", ToString(address), ": ", gai_strerror(failure)));
  }
  int error = 0;
  for (const addrinfo* where = found; where != nullptr && error == 0; where = where->ai_next) {
    error = TryListen(*where);
  }
  freeaddrinfo(found);
  return error == 0 ? absl::OkStatus() : FromErrno(error, ToString(address));
}

}  // namespace ddprun::rendezvous
