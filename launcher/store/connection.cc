#include "launcher/store/connection.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/socket_address.h"
#include "launcher/io/file_descriptor.h"

namespace ddprun::launcher {
namespace {

// Returns 0, or the errno of the failed call.
int ListenAt(SocketAddress address, Listener* listener) {
  UniqueFd fd(socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return errno;
  const int one = 1;
  const int zero = 0;
  // Lets a fixed port be bound again while connections of the previous round are still in TIME_WAIT.
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (address.family() == AF_INET6) setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero);
  if (bind(fd.get(), address.get(), address.size) != 0) return errno;
  if (listen(fd.get(), SOMAXCONN) != 0) return errno;
  if (getsockname(fd.get(), address.get(), &address.size) != 0) return errno;
  *listener = Listener{std::move(fd), PortOf(address)};
  return 0;
}

int ListenAtAll(int port, Listener* listener) {
  const int error = ListenAt(*NumericAddress("::", port), listener);
  // A host without IPv6 reports one of these errors.
  if (error != EAFNOSUPPORT && error != EADDRNOTAVAIL) return error;
  return ListenAt(*NumericAddress("0.0.0.0", port), listener);
}

}  // namespace

absl::StatusOr<Listener> Listen(absl::string_view address, int first_port, int last_port) {
  if (first_port < 0 || last_port < first_port || last_port > 65535 || (first_port == 0 && last_port != 0)) {
    return absl::InvalidArgumentError(absl::StrCat("invalid port range: ", first_port, "-", last_port));
  }
  if (auto numeric = NumericAddress(address.empty() ? "::" : address, 0); !numeric.ok()) return numeric.status();
  for (int port = first_port;; ++port) {
    Listener listener;
    const int error =
        address.empty() ? ListenAtAll(port, &listener) : ListenAt(*NumericAddress(address, port), &listener);
    if (error == 0) return listener;
    const bool is_last = port == last_port;
    if (error == EADDRINUSE && !is_last) continue;
    if (error == EADDRINUSE && first_port != last_port) {
      return absl::ResourceExhaustedError(
          absl::StrCat("the store can't listen: all ports of ", first_port, "-", last_port, " are in use"));
    }
    return ErrnoStatus(error, absl::StrCat("the store can't listen on ", address.empty() ? "all addresses" : address,
                                           ", port ", port));
  }
}

void RoundNodes::Add(absl::string_view address, const std::vector<std::string>& others, int workers) {
  Node& node = nodes_[address];
  node.workers += workers;
  ++node.launchers;
  addresses_[address] = std::string(address);
  for (const std::string& other : others) addresses_.try_emplace(other, address);
}

absl::string_view RoundNodes::NodeAt(absl::string_view address) const {
  const auto it = addresses_.find(address);
  return it == addresses_.end() ? absl::string_view() : it->second;
}

bool RoundNodes::Connect(absl::string_view node) {
  const auto it = nodes_.find(node);
  if (it == nodes_.end()) return false;
  Node& of = it->second;
  if (of.connections >= of.launchers * kConnectionsOfNode + of.workers * kConnectionsOfWorker) return false;
  ++of.connections;
  return true;
}

void RoundNodes::Disconnect(absl::string_view node) {
  const auto it = nodes_.find(node);
  if (it != nodes_.end() && it->second.connections > 0) --it->second.connections;
}

bool PendingConnections::Add(ClientId id, absl::string_view stranger, SteadyTime now) {
  if (!stranger.empty()) {
    size_t& count = of_address_[stranger];
    if (count >= limits_.strangers_of_address) return false;
    ++count;
  }
  Line& line = stranger.empty() ? nodes_ : strangers_;
  by_id_[id] = line.insert(line.end(), Pending{id, now + limits_.patience, std::string(stranger)});
  return true;
}

void PendingConnections::Remove(ClientId id) {
  const auto it = by_id_.find(id);
  if (it == by_id_.end()) return;
  const Line::iterator pending = it->second;
  by_id_.erase(it);
  if (pending->stranger.empty()) {
    nodes_.erase(pending);
    return;
  }
  const auto count = of_address_.find(pending->stranger);
  if (--count->second == 0) of_address_.erase(count);
  strangers_.erase(pending);
}

std::optional<ClientId> PendingConnections::Surplus() const {
  if (strangers_.size() <= limits_.strangers) return std::nullopt;
  return strangers_.front().id;
}

std::optional<ClientId> PendingConnections::Expired(SteadyTime now) const {
  for (const Line* line : {&nodes_, &strangers_}) {
    if (!line->empty() && line->front().until <= now) return line->front().id;
  }
  return std::nullopt;
}

SteadyTime PendingConnections::NextDeadline() const {
  SteadyTime next = SteadyTime::InfiniteFuture();
  for (const Line* line : {&nodes_, &strangers_}) {
    if (!line->empty()) next = std::min(next, line->front().until);
  }
  return next;
}

std::vector<ClientId> PendingConnections::Of(absl::string_view address) const {
  std::vector<ClientId> ids;
  if (!of_address_.contains(address)) return ids;
  for (const Pending& pending : strangers_) {
    if (pending.stranger == address) ids.push_back(pending.id);
  }
  return ids;
}

namespace {

constexpr size_t kReadBytes = 64 * 1024;
constexpr size_t kMovedBytes = 1024 * 1024;

// Sends as much of `bytes` as the socket accepts and advances `*sent`. False: the peer is gone.
bool SendSome(int fd, const std::string& bytes, size_t* sent) {
  while (*sent < bytes.size()) {
    const ssize_t count = send(fd, bytes.data() + *sent, bytes.size() - *sent, MSG_NOSIGNAL);
    if (count >= 0) {
      *sent += static_cast<size_t>(count);
    } else if (errno != EINTR) {
      return errno == EAGAIN || errno == EWOULDBLOCK;
    }
  }
  return true;
}

}  // namespace

bool Connection::Read() {
  char bytes[kReadBytes];
  ssize_t count;
  do {
    count = recv(fd_.get(), bytes, sizeof bytes, 0);
  } while (count < 0 && errno == EINTR);
  if (count < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
  parser_.Append({bytes, static_cast<size_t>(count)});
  return count > 0;
}

bool Connection::Send(std::string bytes) {
  if (unsent_bytes() > 0) {
    output_ += bytes;
    return true;
  }
  size_t sent = 0;
  if (!SendSome(fd_.get(), bytes, &sent)) return false;
  if (sent == bytes.size()) return true;
  output_ = std::move(bytes);
  sent_ = sent;
  return true;
}

bool Connection::Flush() {
  if (!SendSome(fd_.get(), output_, &sent_)) return false;
  if (sent_ == output_.size()) {
    std::string().swap(output_);
    sent_ = 0;
  } else if (sent_ > kMovedBytes && sent_ > output_.size() / 2) {
    output_.erase(0, sent_);
    sent_ = 0;
  }
  return true;
}

}  // namespace ddprun::launcher
