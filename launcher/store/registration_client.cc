#include "launcher/store/registration_client.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "launcher/os/errno_status.h"
#include "launcher/store/reply.h"
#include "launcher/store/request.h"
#include "launcher/store/socket_address.h"

namespace ddprun::launcher {

absl::StatusOr<std::unique_ptr<RegistrationClient>> RegistrationClient::Start(absl::string_view address, int port,
                                                                              const NodeRegistration& node) {
  auto numeric = NumericAddress(address, port);
  if (!numeric.ok()) return numeric.status();
  UniqueFd fd(socket(numeric->family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return ErrnoStatus(errno, "can't open a socket");
  const int one = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
  if (connect(fd.get(), numeric->get(), numeric->size) != 0 && errno != EINPROGRESS) {
    return ErrnoStatus(errno, "can't connect");
  }
  return std::unique_ptr<RegistrationClient>(new RegistrationClient(std::move(fd), RegistrationBytes(node)));
}

uint32_t RegistrationClient::events() const {
  if (state_ == State::kFailed) return 0;
  return unsent_.empty() ? EPOLLIN : EPOLLIN | EPOLLOUT;
}

RegistrationClient::State RegistrationClient::OnReady() {
  if (state_ == State::kConnecting) {
    int error = 0;
    socklen_t size = sizeof error;
    getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) return Fail(error, "can't connect");
  }
  SendUnsent();
  if (state_ != State::kFailed) ReadReply();
  return state_;
}

void RegistrationClient::SendUnsent() {
  while (!unsent_.empty()) {
    const ssize_t sent = send(fd_.get(), unsent_.data(), unsent_.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    // ENOTCONN: a wake-up before the connection is made.
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOTCONN)) return;
    if (sent < 0) {
      Fail(errno, "can't register");
      return;
    }
    unsent_.erase(0, static_cast<size_t>(sent));
  }
  if (state_ == State::kConnecting) state_ = State::kAwaitingReply;
}

void RegistrationClient::ReadReply() {
  char reply[2];
  const ssize_t size = recv(fd_.get(), reply, sizeof reply, 0);
  if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR || errno == ENOTCONN)) return;
  if (size <= 0) {
    Fail(size == 0 ? ECONNRESET : errno, state_ == State::kRegistered ? "lost" : "registration refused");
    return;
  }
  const bool is_valid = size == 1 && static_cast<uint8_t>(reply[0]) == kRegistered;
  if (!is_valid || state_ != State::kAwaitingReply) {
    Fail(EPROTO, "another program answers there");
    return;
  }
  state_ = State::kRegistered;
}

RegistrationClient::State RegistrationClient::Fail(int error_number, absl::string_view what) {
  status_ = ErrnoStatus(error_number, what);
  state_ = State::kFailed;
  unsent_.clear();
  return state_;
}

}  // namespace ddprun::launcher
