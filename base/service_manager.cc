#include "base/service_manager.h"

#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cstdlib>
#include <optional>

#include "absl/strings/str_cat.h"
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

std::string ReloadingState() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return absl::StrCat("RELOADING=1\nMONOTONIC_USEC=", now.tv_sec * 1000000LL + now.tv_nsec / 1000);
}

}  // namespace ddprun
