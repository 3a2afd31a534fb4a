#include "worker_runtime/process_group/tcp_sockets.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <linux/tcp.h>  // tcp_info with bytes, which netinet/tcp.h does not have
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace ddprun {
namespace {

constexpr int kSilentSeconds = 30, kBetweenProbesSeconds = 10, kProbes = 3;

std::string ToText(const sockaddr_storage& address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address.ss_family == AF_INET) {
    const auto& ip = reinterpret_cast<const sockaddr_in&>(address);
    inet_ntop(AF_INET, &ip.sin_addr, text, sizeof text);
    return absl::StrCat(text, ":", ntohs(ip.sin_port));
  }
  if (address.ss_family != AF_INET6) return "";
  const auto& ip = reinterpret_cast<const sockaddr_in6&>(address);
  if (IN6_IS_ADDR_V4MAPPED(&ip.sin6_addr)) {
    inet_ntop(AF_INET, &ip.sin6_addr.s6_addr[12], text, sizeof text);
    return absl::StrCat(text, ":", ntohs(ip.sin6_port));
  }
  inet_ntop(AF_INET6, &ip.sin6_addr, text, sizeof text);
  return absl::StrCat("[", text, "]:", ntohs(ip.sin6_port));
}

using AddressCall = int (*)(int, sockaddr*, socklen_t*);

std::string AddressBy(AddressCall call, int fd) {
  sockaddr_storage address = {};
  socklen_t size = sizeof address;
  return call(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0 ? ToText(address) : "";
}

std::optional<int> Option(int fd, int option) {
  int value = 0;
  socklen_t size = sizeof value;
  if (getsockopt(fd, SOL_SOCKET, option, &value, &size) != 0) return std::nullopt;
  return value;
}

std::optional<TcpSocket> LookAt(int fd) {
  if (Option(fd, SO_TYPE) != SOCK_STREAM) return std::nullopt;
  const std::optional<int> family = Option(fd, SO_DOMAIN);
  if (family != AF_INET && family != AF_INET6) return std::nullopt;
  return TcpSocket{.local = AddressBy(getsockname, fd),
                   .remote = AddressBy(getpeername, fd),
                   .listening = Option(fd, SO_ACCEPTCONN) == 1};
}

std::vector<int> OpenDescriptors() {
  std::vector<int> fds;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc/self/fd"), closedir);
  if (folder == nullptr) return fds;
  while (const dirent* entry = readdir(folder.get())) {
    int fd = -1;
    if (absl::SimpleAtoi(entry->d_name, &fd) && fd != dirfd(folder.get())) fds.push_back(fd);
  }
  return fds;
}

// Calls `use` with a duplicate of each descriptor, so that `socket` describes the same socket as `fd` even if other
// threads close and open descriptors meanwhile.
void ForEachSocket(absl::FunctionRef<void(int fd, const TcpSocket&)> use) {
  for (const int fd : OpenDescriptors()) {
    if (!Option(fd, SO_TYPE).has_value()) continue;
    const int own = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (own < 0) continue;
    if (const std::optional<TcpSocket> socket = LookAt(own)) use(own, *socket);
    close(own);
  }
}

void SetOption(int fd, int level, int option, int value) { setsockopt(fd, level, option, &value, sizeof value); }

}  // namespace

std::vector<TcpSocket> FindTcpSockets(SocketFilter filter) {
  std::vector<TcpSocket> found;
  ForEachSocket([&](int, const TcpSocket& socket) {
    if (filter(socket)) found.push_back(socket);
  });
  return found;
}

TcpTraffic MeasureTcpSockets(SocketFilter filter) {
  TcpTraffic traffic;
  ForEachSocket([&](int fd, const TcpSocket& socket) {
    if (!filter(socket)) return;
    traffic.sockets.push_back(socket);
    tcp_info info = {};
    socklen_t size = sizeof info;
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0) {
      traffic.bytes += info.tcpi_bytes_acked + info.tcpi_bytes_received;
    }
  });
  return traffic;
}

int ShutDownTcpSockets(SocketFilter filter) {
  int count = 0;
  ForEachSocket([&](int fd, const TcpSocket& socket) {
    if (filter(socket)) count += shutdown(fd, SHUT_RDWR) == 0;
  });
  return count;
}

void KeepAliveTcpSockets(SocketFilter filter) {
  ForEachSocket([&](int fd, const TcpSocket& socket) {
    if (!filter(socket)) return;
    SetOption(fd, IPPROTO_TCP, TCP_KEEPIDLE, kSilentSeconds);
    SetOption(fd, IPPROTO_TCP, TCP_KEEPINTVL, kBetweenProbesSeconds);
    SetOption(fd, IPPROTO_TCP, TCP_KEEPCNT, kProbes);
    SetOption(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  });
}

void LimitSilenceOfTcpSockets(SocketFilter filter) {
  KeepAliveTcpSockets(filter);
  constexpr int kMilliseconds = 1000 * (kSilentSeconds + kProbes * kBetweenProbesSeconds);
  ForEachSocket([&](int fd, const TcpSocket& socket) {
    if (filter(socket)) SetOption(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, kMilliseconds);
  });
}

void LimitReadsOfTcpSockets(SocketFilter filter, absl::Duration limit) {
  const timeval most = absl::ToTimeval(limit);
  ForEachSocket([&](int fd, const TcpSocket& socket) {
    if (filter(socket)) setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
  });
}

absl::StatusOr<std::string> LocalAddressTowards(const std::string& host, int port) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* list = nullptr;
  const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (error != 0) return absl::UnavailableError(absl::StrCat("can't resolve ", host, ": ", gai_strerror(error)));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> addresses(list, freeaddrinfo);
  // IPv4 first: some hosts of a job may not support IPv6.
  for (const bool v4 : {true, false}) {
    for (const addrinfo* address = list; address != nullptr; address = address->ai_next) {
      if ((address->ai_family == AF_INET) != v4) continue;
      // Connecting a datagram socket selects its route without sending anything.
      const int fd = socket(address->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
      if (fd < 0) continue;
      const bool connected = connect(fd, address->ai_addr, address->ai_addrlen) == 0;
      const std::string local = connected ? AddressBy(getsockname, fd) : "";
      close(fd);
      if (!local.empty()) return HostOfAddress(local);
    }
  }
  return absl::UnavailableError(absl::StrCat("no route to ", host, ": ", strerror(errno)));
}

std::string HostOfAddress(absl::string_view address) {
  const size_t colon = address.rfind(':');
  if (colon == absl::string_view::npos) return std::string(address);
  address = address.substr(0, colon);
  if (!address.empty() && address.front() == '[' && address.back() == ']')
    address = address.substr(1, address.size() - 2);
  return std::string(address);
}

int PortOfAddress(absl::string_view address) {
  const size_t colon = address.rfind(':');
  int port = -1;
  if (colon == absl::string_view::npos || !absl::SimpleAtoi(address.substr(colon + 1), &port)) return -1;
  return port;
}

}  // namespace ddprun
