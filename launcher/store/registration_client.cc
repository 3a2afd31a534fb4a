#include "launcher/store/registration_client.h"

#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>

#include "launcher/io/file_descriptor.h"
#include "launcher/store/reply.h"

namespace ddprun::launcher {
namespace {

// Backoff between attempts: doubled each time, with a random reduction, so that many nodes do not retry at once.
constexpr absl::Duration kFirstWait = absl::Milliseconds(100);
constexpr absl::Duration kLongestWait = absl::Seconds(3);

bool IsNotReady(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR || error == ENOTCONN; }

bool Watch(int epoll, int operation, int fd, uint32_t events) {
  epoll_event event = {};
  event.events = events;
  return epoll_ctl(epoll, operation, fd, &event) == 0;
}

}  // namespace

absl::StatusOr<std::unique_ptr<RegistrationClient>> RegistrationClient::Start(absl::string_view address, int port,
                                                                              const NodeRegistration& node) {
  const absl::StatusOr<SocketAddress> numeric = NumericAddress(address, port);
  if (!numeric.ok()) return numeric.status();
  UniqueFd epoll(epoll_create1(EPOLL_CLOEXEC));
  UniqueFd timer(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!epoll.valid() || !timer.valid() || !Watch(epoll.get(), EPOLL_CTL_ADD, timer.get(), EPOLLIN)) {
    return ErrnoStatus(errno, "can't set up the registration");
  }
  std::unique_ptr<RegistrationClient> client(
      new RegistrationClient(std::move(epoll), std::move(timer), *numeric, RegistrationBytes(node)));
  client->Connect();
  return client;
}

void RegistrationClient::Connect() {
  state_ = State::kConnecting;
  sent_ = 0;
  socket_.reset(socket(address_.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket_.valid()) return Fail(errno, "can't open a socket");
  const int one = 1;
  setsockopt(socket_.get(), SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
  if (connect(socket_.get(), address_.get(), address_.size) != 0 && errno != EINPROGRESS) {
    return Fail(errno, "can't connect");
  }
  if (!Watch(epoll_.get(), EPOLL_CTL_ADD, socket_.get(), EPOLLIN | EPOLLOUT)) Fail(errno, "can't watch a socket");
}

RegistrationClient::State RegistrationClient::OnReady() {
  if (state_ == State::kBackingOff) {
    uint64_t times = 0;
    if (read(timer_.get(), &times, sizeof times) == sizeof times) Connect();
  } else if (state_ != State::kLost) {
    GoOn();
  }
  return state_;
}

void RegistrationClient::GoOn() {
  if (state_ == State::kConnecting) {
    int error = 0;
    socklen_t size = sizeof error;
    getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) return Fail(error, "can't connect");
    SendUnsent();
  }
  if (state_ == State::kAwaitingReply || state_ == State::kRegistered) ReadReply();
}

void RegistrationClient::SendUnsent() {
  while (sent_ < request_.size()) {
    const ssize_t sent = send(socket_.get(), request_.data() + sent_, request_.size() - sent_, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    // ENOTCONN: woken up before the connection is established.
    if (sent < 0 && IsNotReady(errno)) return;
    if (sent < 0) return Fail(errno, "can't register");
    sent_ += static_cast<size_t>(sent);
  }
  state_ = State::kAwaitingReply;
  Watch(epoll_.get(), EPOLL_CTL_MOD, socket_.get(), EPOLLIN);
}

void RegistrationClient::ReadReply() {
  char reply[2];
  const ssize_t size = recv(socket_.get(), reply, sizeof reply, 0);
  if (size < 0 && IsNotReady(errno)) return;
  if (state_ == State::kRegistered) {
    socket_.reset();
    state_ = State::kLost;
  } else if (size <= 0) {
    Fail(size == 0 ? ECONNRESET : errno, "registration refused");
  } else if (size > 1 || static_cast<uint8_t>(reply[0]) != kRegistered) {
    Fail(EPROTO, "another program answers there");
  } else {
    status_ = absl::OkStatus();
    state_ = State::kRegistered;
  }
}

void RegistrationClient::Fail(int error_number, absl::string_view what) {
  status_ = ErrnoStatus(error_number, what);
  state_ = State::kBackingOff;
  socket_.reset();
  wait_ = std::clamp(2 * wait_, kFirstWait, kLongestWait);
  itimerspec once = {};
  once.it_value = absl::ToTimespec(wait_ * std::uniform_real_distribution<double>(0.5, 1.0)(random_));
  timerfd_settime(timer_.get(), 0, &once, nullptr);
}

}  // namespace ddprun::launcher
