#include "launcher/preflight/address_probe.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <future>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/socket_address.h"
#include "base/status_macros.h"
#include "launcher/io/file_descriptor.h"
#include "launcher/io/net.h"

namespace ddprun::launcher {
namespace {

using hosts::v1::HostCommand;
using hosts::v1::HostReport;

constexpr absl::Duration kConnectPatience = absl::Seconds(5);
constexpr absl::Duration kUserTimeout = absl::Minutes(20);  // equals that of the launcher's own listeners
constexpr int kMaxAddresses = 16;

// Returns why the address can't be reached; empty: the word came from it.
std::string TryOne(const std::string& address, int port, const std::string& word) {
  const absl::StatusOr<SocketAddress> target = NumericAddress(address, port);
  if (!target.ok()) return "not an address";
  const UniqueFd fd(socket(target->family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  const timeval patience = absl::ToTimeval(kConnectPatience);
  for (const int option : {SO_SNDTIMEO, SO_RCVTIMEO}) {
    setsockopt(fd.get(), SOL_SOCKET, option, &patience, sizeof(patience));
  }
  if (connect(fd.get(), target->get(), target->size) != 0) {
    return errno == EINPROGRESS || errno == EAGAIN ? "no answer" : strerror(errno);
  }
  std::string answer(word.size(), '\0');
  const ssize_t got = recv(fd.get(), answer.data(), answer.size(), MSG_WAITALL);
  return got == static_cast<ssize_t>(word.size()) && answer == word ? "" : "another program answers";
}

}  // namespace

absl::StatusOr<std::unique_ptr<ProbedListener>> ProbedListener::Open(EventLoop* loop,
                                                                     const HostCommand::Listen& request) {
  absl::StatusOr<rendezvous::Listeners> sockets = absl::ResourceExhaustedError("no port is free");
  for (int port = request.first_port(); !sockets.ok() && port <= request.last_port(); ++port) {
    sockets = rendezvous::Listen({"::", port}, kUserTimeout);
  }
  if (!sockets.ok() && request.first_port() > 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no port from ", request.first_port(), " to ", request.last_port(), " is free"));
  }
  if (!sockets.ok()) return sockets.status();
  std::unique_ptr<ProbedListener> listener(new ProbedListener(loop, *std::move(sockets), request.word()));
  DDPRUN_RETURN_IF_ERROR(loop->AddFd(listener->fd(), EPOLLIN, [l = listener.get()](uint32_t) { l->Greet(); }));
  return listener;
}

void ProbedListener::Greet() {
  const UniqueFd peer(accept4(fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  // The word fits into the socket's buffer.
  if (peer.valid()) (void)send(peer.get(), word_.data(), word_.size(), MSG_NOSIGNAL);
}

HostReport::Listening ProbedListener::Describe() const {
  HostReport::Listening result;
  result.set_port(sockets_.port);
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
