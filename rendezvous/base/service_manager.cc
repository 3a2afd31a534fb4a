#include "rendezvous/base/service_manager.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace ddprun {

void NotifyServiceManager(absl::string_view state) {
  const char* const name = getenv("NOTIFY_SOCKET");
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const size_t length = name == nullptr ? 0 : strlen(name);
  if (length < 2 || length >= sizeof address.sun_path || (name[0] != '/' && name[0] != '@')) return;
  memcpy(address.sun_path, name, length);
  if (name[0] == '@') address.sun_path[0] = '\0';  // an abstract socket
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return;
  sendto(fd, state.data(), state.size(), MSG_NOSIGNAL | MSG_DONTWAIT, reinterpret_cast<const sockaddr*>(&address),
         offsetof(sockaddr_un, sun_path) + length);
  close(fd);
}

std::string ReloadingState() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return absl::StrCat("RELOADING=1\nMONOTONIC_USEC=", now.tv_sec * 1000000LL + now.tv_nsec / 1000);
}

}  // namespace ddprun
