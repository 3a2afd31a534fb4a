#include "launcher/hosts/reach_probe.h"

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <future>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/steady_time.h"
#include "launcher/os/errno_status.h"
#include "launcher/os/net.h"

namespace ddprun::launcher {
namespace {

using hosts::v1::HostCommand;
using hosts::v1::HostReport;

constexpr absl::Duration kPatience = absl::Seconds(5);
constexpr size_t kMaxAddresses = 16;

// Invalid if the port is not free or the family is unknown here.
UniqueFd ListenAt(int family, int port) {
  UniqueFd fd(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return fd;
  const int on = 1, off = 0;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_storage address{};
  socklen_t size;
  if (family == AF_INET6) {
    setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    auto& v6 = reinterpret_cast<sockaddr_in6&>(address);
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(port);
    size = sizeof(v6);
  } else {
    auto& v4 = reinterpret_cast<sockaddr_in&>(address);
    v4.sin_family = AF_INET;
    v4.sin_port = htons(port);
    size = sizeof(v4);
  }
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size) != 0 || listen(fd.get(), 128) != 0) fd.reset();
  return fd;
}

int PortOf(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<sockaddr_in&>(address).sin_port);
}

// True once `fd` is ready; false after the deadline.
bool WaitFor(int fd, short events, SteadyTime deadline) {
  while (true) {
    const absl::Duration left = deadline - SteadyNow();
    if (left <= absl::ZeroDuration()) return false;
    pollfd poller{fd, events, 0};
    const int ready = poll(&poller, 1, static_cast<int>(absl::ToInt64Milliseconds(left)) + 1);
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
  }
}

std::string TryOne(const std::string& address, int port, const std::string& word) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(address.c_str(), absl::StrCat(port).c_str(), &hints, &found) != 0) return "not an address";
  const SteadyTime deadline = SteadyNow() + kPatience;
  const UniqueFd fd(socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int connected = fd.valid() ? connect(fd.get(), found->ai_addr, found->ai_addrlen) : -1;
  const int failed = connected == 0 ? 0 : errno;
  freeaddrinfo(found);
  if (failed != 0 && failed != EINPROGRESS) return strerror(failed);
  if (!WaitFor(fd.get(), POLLOUT, deadline)) return "no answer";
  int error = 0;
  socklen_t size = sizeof(error);
  getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) return strerror(error);
  std::string answer;
  while (answer.size() < word.size() && WaitFor(fd.get(), POLLIN, deadline)) {
    char buffer[256];
    const ssize_t got = read(fd.get(), buffer, sizeof(buffer));
    if (got <= 0) break;
    answer.append(buffer, got);
  }
  return answer == word ? "" : "another program answers";
}

}  // namespace

absl::StatusOr<std::unique_ptr<ReachListener>> ReachListener::Open(EventLoop* loop,
                                                                   const HostCommand::Listen& request) {
  UniqueFd fd;
  for (int port = request.first_port(); !fd.valid() && port <= request.last_port(); ++port) {
    fd = ListenAt(AF_INET6, port);
    if (!fd.valid()) fd = ListenAt(AF_INET, port);
  }
  if (!fd.valid()) {
    return absl::ResourceExhaustedError(
        request.first_port() == 0
            ? "no port is free"
            : absl::StrCat("no port from ", request.first_port(), " to ", request.last_port(), " is free"));
  }
  const int number = fd.get();
  const int port = PortOf(number);
  std::unique_ptr<ReachListener> listener(new ReachListener(loop, std::move(fd), port, request.word()));
  const absl::Status added = loop->AddFd(number, EPOLLIN, [l = listener.get()](uint32_t) { l->OnConnection(); });
  if (!added.ok()) return added;
  return listener;
}

ReachListener::~ReachListener() { loop_->RemoveFd(socket_.get()); }

void ReachListener::OnConnection() {
  const UniqueFd peer(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  // The word fits into the socket's buffer.
  if (peer.valid()) (void)send(peer.get(), word_.data(), word_.size(), MSG_NOSIGNAL);
}

HostReport::Listening ReachListener::Describe() const {
  HostReport::Listening result;
  result.set_port(port_);
  std::vector<InterfaceAddress> addresses = LocalAddresses();
  const std::string outward = OutwardAddress();
  // Names and routes of users mostly mean IPv4. Loopback is for several agents of one host.
  std::stable_sort(addresses.begin(), addresses.end(), [&](const InterfaceAddress& a, const InterfaceAddress& b) {
    const auto key = [&](const InterfaceAddress& x) { return std::tuple(x.loopback, x.address != outward, x.ipv6); };
    return key(a) < key(b);
  });
  for (const InterfaceAddress& address : addresses) {
    if (address.link_local || result.addresses_size() == kMaxAddresses) continue;
    HostReport::Address* const added = result.add_addresses();
    added->set_address(address.address);
    added->set_interface(address.interface);
  }
  return result;
}

std::vector<std::string> TryToReach(const HostCommand::Reach& request) {
  std::vector<std::future<std::string>> attempts;
  for (const std::string& address : request.addresses()) {
    attempts.push_back(std::async(std::launch::async, TryOne, address, request.port(), request.word()));
  }
  std::vector<std::string> errors;
  for (std::future<std::string>& attempt : attempts) errors.push_back(attempt.get());
  return errors;
}

}  // namespace ddprun::launcher
