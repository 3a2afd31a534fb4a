#include "base/service_manager.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <optional>

#include "base/unix_address.h"

namespace ddprun {

void NotifyServiceManager(absl::string_view state) {
  const char* const name = getenv("NOTIFY_SOCKET");
  const std::optional<UnixAddress> address = UnixAddress::Parse(name == nullptr ? "" : name);
  if (!address.has_value()) return;
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return;
  sendto(fd, state.data(), state.size(), MSG_NOSIGNAL | MSG_DONTWAIT, address->get(), address->size());
  close(fd);
}

}  // namespace ddprun
