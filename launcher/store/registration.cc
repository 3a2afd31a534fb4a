#include "launcher/store/registration.h"

#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "launcher/io/file_descriptor.h"
#include "launcher/store/request_parser.h"
#include "proto/registration.pb.h"

namespace ddprun::launcher {
namespace {

constexpr size_t kMaxHostBytes = 255;
constexpr size_t kMaxAddressBytes = 45;  // IPv6 with an IPv4 tail
constexpr size_t kMaxSecretBytes = 64;

absl::Status Refused(absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("malformed registration: ", why));
}

}  // namespace

std::string EncodeRegistration(const NodeRegistration& node) {
  store::v1::Registration message;
  message.set_round(node.round);
  message.set_secret(node.secret);
  message.set_base_rank(node.base_rank);
  message.set_host(OneLine(node.host, kMaxHostBytes));
  for (const uint32_t pid : node.pids) message.add_pids(pid);
  for (const std::string& address : node.addresses) {
    if (message.addresses_size() < kMaxAddressesOfNode) message.add_addresses(address);
  }
  return message.SerializeAsString();
}

absl::StatusOr<NodeRegistration> DecodeRegistration(absl::string_view payload) {
  store::v1::Registration message;
  if (payload.size() > kMaxRegistrationBytes) return Refused(absl::StrCat(payload.size(), " bytes"));
  if (!message.ParseFromArray(payload.data(), static_cast<int>(payload.size()))) {
    return Refused("not a Registration; run the same ddprun version on all nodes");
  }
  if (message.pids_size() == 0 || message.pids_size() > kMaxWorkersOfNode) {
    return Refused(absl::StrCat(message.pids_size(), " workers"));
  }
  if (message.base_rank() < 0 || message.base_rank() > kMaxRanks - message.pids_size()) {
    return Refused(absl::StrCat("base rank ", message.base_rank()));
  }
  if (message.addresses_size() > kMaxAddressesOfNode) {
    return Refused(absl::StrCat(message.addresses_size(), " addresses"));
  }
  if (message.secret().size() > kMaxSecretBytes) return Refused("the secret is too long");
  NodeRegistration node;
  for (std::string& address : *message.mutable_addresses()) {
    if (address.size() > kMaxAddressBytes) return Refused("an address is too long");
    node.addresses.push_back(std::move(address));
  }
  node.round = message.round();
  node.base_rank = message.base_rank();
  node.host = OneLine(message.host(), kMaxHostBytes);
  node.pids.assign(message.pids().begin(), message.pids().end());
  node.secret = std::move(*message.mutable_secret());
  return node;
}

std::string RegistrationBytes(const NodeRegistration& node) {
  std::string bytes;
  AppendInteger(static_cast<uint8_t>(Opcode::kValidate), &bytes);
  AppendInteger<uint32_t>(kValidateMagic, &bytes);
  AppendInteger(static_cast<uint8_t>(Opcode::kRegisterNode), &bytes);
  AppendString(EncodeRegistration(node), &bytes);
  return bytes;
}

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
  DDPRUN_ASSIGN_OR_RETURN(const SocketAddress numeric, NumericAddress(address, port));
  UniqueFd epoll(epoll_create1(EPOLL_CLOEXEC));
  UniqueFd timer(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!epoll.valid() || !timer.valid() || !Watch(epoll.get(), EPOLL_CTL_ADD, timer.get(), EPOLLIN)) {
    return ErrnoStatus(errno, "can't set up the registration");
  }
  std::unique_ptr<RegistrationClient> client(
      new RegistrationClient(std::move(epoll), std::move(timer), numeric, RegistrationBytes(node)));
  client->Connect();
  return client;
}

void RegistrationClient::Connect() {
  state_ = State::kConnecting;
  request_ = registration_;
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
  }
  if (sent_ < request_.size()) SendUnsent();
  if (state_ == State::kAwaitingReply || state_ == State::kRegistered) ReadReply();
}

void RegistrationClient::SendUnsent() {
  while (sent_ < request_.size()) {
    const ssize_t sent = send(socket_.get(), request_.data() + sent_, request_.size() - sent_, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    // ENOTCONN: woken up before the connection is established.
    if (sent < 0 && IsNotReady(errno)) return;
    // ReadReply finds that a registered connection is lost.
    if (sent < 0 && state_ == State::kRegistered) break;
    if (sent < 0) return Fail(errno, "can't register");
    sent_ += static_cast<size_t>(sent);
  }
  if (state_ == State::kConnecting) state_ = State::kAwaitingReply;
  request_.clear();
  sent_ = 0;
  Watch(epoll_.get(), EPOLL_CTL_MOD, socket_.get(), EPOLLIN);
}

void RegistrationClient::SendEvidence(absl::string_view payload) {
  if (state_ != State::kRegistered || !request_.empty() || payload.size() > RequestLimits().evidence_bytes) return;
  AppendInteger(static_cast<uint8_t>(Opcode::kEvidence), &request_);
  AppendString(payload, &request_);
  // From here on OnReady sends.
  Watch(epoll_.get(), EPOLL_CTL_MOD, socket_.get(), EPOLLIN | EPOLLOUT);
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
