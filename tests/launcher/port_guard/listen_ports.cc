// Listens as each argument specifies, in order, and prints each port, or the negative errno, for example -98:
//   v4 v6   TCP, bound to port 0            reuse    the same, with SO_REUSEADDR and SO_REUSEPORT
//   unbound TCP, listens without bind       udp      UDP, bound to port 0
//   PORT    TCP, bound to that port         client   TCP, bound to port 0 with IP_BIND_ADDRESS_NO_PORT, not listening
//   unix    a local stream                  short    bind with an address that is cut short
//   threads eight threads with four v4 each, kept open
//   fork    v4, and v4 in a child at the same time
// "errno" is printed for a successful call that changed errno.
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace {

int PortOf(int fd) {
  sockaddr_storage address = {};
  socklen_t size = sizeof address;
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.ss_family == AF_INET ? reinterpret_cast<sockaddr_in*>(&address)->sin_port
                                            : reinterpret_cast<sockaddr_in6*>(&address)->sin6_port);
}

struct Wish {
  int family = AF_INET;
  int type = SOCK_STREAM;
  int port = 0;
  bool reuse = false;
  bool bind = true;
  bool listen = true;
  bool cut = false;
  bool late_port = false;
};

// Returns the port, or the negative errno. Sockets stay open.
int Open(const Wish& wish) {
  const int fd = socket(wish.family, wish.type, 0);
  const int on = 1;
  if (wish.reuse) {
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on);
  }
  if (wish.late_port) setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
  sockaddr_in v4 = {};
  v4.sin_family = AF_INET;
  v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  v4.sin_port = htons(static_cast<in_port_t>(wish.port));
  sockaddr_in6 v6 = {};
  v6.sin6_family = AF_INET6;
  v6.sin6_addr = in6addr_loopback;
  sockaddr_un local = {};
  local.sun_family = AF_UNIX;
  const sockaddr* address = wish.family == AF_INET    ? reinterpret_cast<sockaddr*>(&v4)
                            : wish.family == AF_INET6 ? reinterpret_cast<sockaddr*>(&v6)
                                                      : reinterpret_cast<sockaddr*>(&local);
  const socklen_t size = wish.family == AF_INET ? sizeof v4 : wish.family == AF_INET6 ? sizeof v6 : sizeof(sa_family_t);
  errno = 0;
  if (wish.bind && bind(fd, address, wish.cut ? 4 : size) != 0) return -errno;
  if (wish.listen && wish.type == SOCK_STREAM && listen(fd, 5) != 0) return -errno;
  if (errno != 0) printf("errno %d\n", errno);
  return wish.family == AF_UNIX ? 0 : PortOf(fd);
}

void Print(int port) {
  printf("%d\n", port);
  fflush(stdout);
}

void OpenInThreads() {
  std::vector<std::thread> threads;
  std::mutex mutex;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&mutex] {
      for (int k = 0; k < 4; ++k) {
        const int port = Open({});
        const std::lock_guard<std::mutex> lock(mutex);
        Print(port);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Both keep their sockets open until the last one is bound.
void OpenInTwoProcesses() {
  int done[2];
  if (pipe(done) != 0) abort();
  const pid_t child = fork();
  for (int i = 0; i < 8; ++i) Print(Open({.reuse = true}));
  close(done[1]);
  char end;
  if (child == 0) _exit(read(done[0], &end, 1) == 0 ? 0 : 1);
  waitpid(child, nullptr, 0);
}

}  // namespace

int main(int argc, char** argv) {
  setvbuf(stdout, nullptr, _IOLBF, 0);
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "threads") {
      OpenInThreads();
    } else if (word == "fork") {
      OpenInTwoProcesses();
    } else if (word == "v4") {
      Print(Open({}));
    } else if (word == "v6") {
      Print(Open({.family = AF_INET6}));
    } else if (word == "reuse") {
      Print(Open({.reuse = true}));
    } else if (word == "unbound") {
      Print(Open({.bind = false}));
    } else if (word == "udp") {
      Print(Open({.type = SOCK_DGRAM}));
    } else if (word == "unix") {
      Print(Open({.family = AF_UNIX}));
    } else if (word == "short") {
      Print(Open({.cut = true}));
    } else if (word == "client") {
      Print(Open({.listen = false, .late_port = true}));
    } else {
      Print(Open({.port = atoi(argv[i])}));
    }
  }
}
