#include "launcher/store/listener.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/socket_address.h"
#include "launcher/io/file_descriptor.h"

namespace ddprun::launcher {
namespace {

// Returns 0, or the errno of the failed call.
int ListenAt(SocketAddress address, Listener* listener) {
  UniqueFd fd(socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return errno;
  const int one = 1;
  const int zero = 0;
  // Lets a fixed port be bound again while connections of the previous round are still in TIME_WAIT.
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (address.family() == AF_INET6) setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero);
  if (bind(fd.get(), address.get(), address.size) != 0) return errno;
  if (listen(fd.get(), SOMAXCONN) != 0) return errno;
  if (getsockname(fd.get(), address.get(), &address.size) != 0) return errno;
  *listener = Listener{std::move(fd), PortOf(address)};
  return 0;
}

int ListenAtAll(int port, Listener* listener) {
  const int error = ListenAt(*NumericAddress("::", port), listener);
  // A host without IPv6 reports one of these errors.
  if (error != EAFNOSUPPORT && error != EADDRNOTAVAIL) return error;
  return ListenAt(*NumericAddress("0.0.0.0", port), listener);
}

}  // namespace

absl::StatusOr<Listener> Listen(absl::string_view address, int first_port, int last_port) {
  if (first_port < 0 || last_port < first_port || last_port > 65535 || (first_port == 0 && last_port != 0)) {
    return absl::InvalidArgumentError(absl::StrCat("invalid port range: ", first_port, "-", last_port));
  }
  if (auto numeric = NumericAddress(address.empty() ? "::" : address, 0); !numeric.ok()) return numeric.status();
  for (int port = first_port;; ++port) {
    Listener listener;
    const int error =
        address.empty() ? ListenAtAll(port, &listener) : ListenAt(*NumericAddress(address, port), &listener);
    if (error == 0) return listener;
    const bool is_last = port == last_port;
    if (error == EADDRINUSE && !is_last) continue;
    if (error == EADDRINUSE && first_port != last_port) {
      return absl::ResourceExhaustedError(
          absl::StrCat("the store can't listen: all ports of ", first_port, "-", last_port, " are in use"));
    }
    return ErrnoStatus(error, absl::StrCat("the store can't listen on ", address.empty() ? "all addresses" : address,
                                           ", port ", port));
  }
}

}  // namespace ddprun::launcher
