#include "launcher/store/store_server.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/os/errno_status.h"
#include "launcher/store/reply.h"
#include "launcher/store/socket_address.h"

namespace ddprun::launcher {
namespace {

constexpr ClientId kListenerId = 0;

// Shares of one turn, so that no client keeps the others (and the launcher) waiting.
constexpr int kEventsPerTurn = 64;
constexpr int kAcceptsPerTurn = 64;
constexpr int kRequestsPerTurn = 1024;
constexpr size_t kReplyBytesPerTurn = 4 * 1024 * 1024;
// A client with more unsent output than this gets no further request handled until it has read.
constexpr size_t kPauseAtUnsentBytes = 1024 * 1024;

// This host's own clients may come over any of its addresses.
constexpr absl::string_view kThisHost = "this host";
// Wrappers around a worker: far fewer than this.
constexpr int kMaxAncestors = 32;

UniqueFd OpenSpare() { return UniqueFd(open("/dev/null", O_RDONLY | O_CLOEXEC)); }

void SetOptions(int fd) {
  const int one = 1;
  const int idle_s = 10;
  const int interval_s = 5;
  const int probes = 3;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  // A host that is gone without a word: its connections end after 25 s.
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof interval_s);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
}

// Where a connection comes from, as JoinWatch shall see it.
std::string Origin(int fd, const SocketAddress& peer) {
  SocketAddress own;
  const bool has_own = getsockname(fd, own.get(), &own.size) == 0;
  std::string address = AddressText(peer);
  const bool from_here = IsLoopback(peer) || (has_own && AddressText(own) == address);
  return from_here ? std::string(kThisHost) : address;
}

}  // namespace

absl::StatusOr<std::unique_ptr<StoreServer>> StoreServer::Open(StoreOptions options) {
  auto listener = Listen(options.address, options.first_port, options.last_port);
  if (!listener.ok()) return listener.status();
  UniqueFd epoll(epoll_create1(EPOLL_CLOEXEC));
  UniqueFd spare = OpenSpare();
  if (!epoll.valid() || !spare.valid()) return ErrnoStatus(errno, "can't set up the store");
  epoll_event event = {};
  event.events = EPOLLIN;
  event.data.u64 = kListenerId;
  if (epoll_ctl(epoll.get(), EPOLL_CTL_ADD, listener->fd.get(), &event) != 0) {
    return ErrnoStatus(errno, "can't watch the store's port");
  }
  return std::unique_ptr<StoreServer>(
      new StoreServer(std::move(options), *std::move(listener), std::move(epoll), std::move(spare)));
}

StoreServer::StoreServer(StoreOptions options, Listener listener, UniqueFd epoll, UniqueFd spare)
    : options_(std::move(options)),
      listener_(std::move(listener)),
      epoll_(std::move(epoll)),
      spare_(std::move(spare)),
      key_value_(options_.max_bytes) {}

StoreServer::~StoreServer() = default;

void StoreServer::BeginRound(uint64_t round, int world_size) {
  join_watch_.BeginRound(round, world_size);
  std::vector<Connection*> held;
  for (const auto& [id, connection] : connections_) {
    if (connection->registration != nullptr) held.push_back(connection.get());
  }
  for (Connection* connection : held) {
    Register(*connection);
    Settle(*connection);
  }
}

absl::Status StoreServer::RegisterLocal(const NodeRegistration& node) { return join_watch_.Register(node, kThisHost); }

std::vector<WaitingClient> StoreServer::Waiting() const {
  std::vector<WaitingClient> waiting;
  for (KeyValue::Pending& pending : key_value_.PendingWaits()) {
    const JoinWatch::Client& client = connections_.at(pending.client)->client;
    WaitingClient one;
    one.rank = join_watch_.RankOf(client);
    one.pid = client.pids.empty() ? 0 : client.pids[0];
    one.on_rank = JoinWatch::RankThatSets(pending.key);
    one.key = std::move(pending.key);
    waiting.push_back(std::move(one));
  }
  return waiting;
}

void StoreServer::ProcessReady() {
  epoll_event events[kEventsPerTurn];
  const int count = epoll_wait(epoll_.get(), events, kEventsPerTurn, 0);
  for (int i = 0; i < count; ++i) {
    if (events[i].data.u64 == kListenerId) {
      Accept();
      continue;
    }
    // One event's work may have closed another event's connection.
    const auto it = connections_.find(events[i].data.u64);
    if (it != connections_.end()) OnEvents(*it->second, events[i].events);
  }
}

void StoreServer::Accept() {
  for (int i = 0; i < kAcceptsPerTurn; ++i) {
    SocketAddress peer;
    UniqueFd fd(accept4(listener_.fd.get(), peer.get(), &peer.size, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd.valid() && (errno == EMFILE || errno == ENFILE)) {
      // The connection stays in the queue and would wake the loop for ever: take it and close it. The client
      // tries again.
      spare_.reset();
      fd.reset(accept4(listener_.fd.get(), nullptr, nullptr, SOCK_CLOEXEC));
      fd.reset();
      spare_ = OpenSpare();
      return;
    }
    if (!fd.valid() && (errno == EINTR || errno == ECONNABORTED)) continue;
    if (!fd.valid()) return;
    if (static_cast<int>(connections_.size()) >= options_.max_connections) continue;
    SetOptions(fd.get());
    std::string address = Origin(fd.get(), peer);
    AddConnection(std::move(fd), std::move(address));
  }
}

void StoreServer::AddConnection(UniqueFd fd, std::string address) {
  const ClientId id = next_client_++;
  auto connection = std::make_unique<Connection>(id, std::move(fd), std::move(address), options_.request);
  connection->watched_events = EPOLLIN;
  epoll_event event = {};
  event.events = EPOLLIN;
  event.data.u64 = id;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, connection->fd(), &event) != 0) return;
  Connection& added = *connection;
  connections_.emplace(id, std::move(connection));
  Settle(added);
}

void StoreServer::OnEvents(Connection& connection, uint32_t events) {
  if (connection.unsent_bytes() > 0 && !connection.Flush()) CloseLater(connection);
  // After an error there may still be requests to read, and the error comes after them.
  if (!connection.closing && !connection.paused && (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) {
    if (!connection.Read()) CloseLater(connection);
    Recount(connection);
    if (used_bytes() > options_.max_bytes) {
      Reject(connection, absl::StrCat("the store is full (", options_.max_bytes, " bytes)"));
    }
  }
  if (!connection.closing) HandleRequests(connection);
  Settle(connection);
}

void StoreServer::HandleRequests(Connection& connection) {
  size_t reply_bytes = 0;
  connection.paused = false;
  for (int handled = 0; !connection.closing; ++handled) {
    if (handled == kRequestsPerTurn || reply_bytes >= kReplyBytesPerTurn ||
        connection.unsent_bytes() > kPauseAtUnsentBytes) {
      connection.paused = true;
      return;
    }
    Request request;
    switch (connection.parser().Next(&request)) {
      case RequestParser::Outcome::kNeedMore: return;
      case RequestParser::Outcome::kBad: return Reject(connection, connection.parser().error());
      case RequestParser::Outcome::kRequest: break;
    }
    reply_bytes += HandleRequest(connection, std::move(request));
  }
}

size_t StoreServer::HandleRequest(Connection& connection, Request request) {
  const bool is_validate = request.opcode == Opcode::kValidate;
  if (is_validate == connection.validated || (is_validate && request.number != kValidateMagic)) {
    Reject(connection, is_validate ? "a wrong or second VALIDATE" : "the first request was not VALIDATE");
    return 0;
  }
  connection.validated = true;
  if (is_validate) return 0;
  if (request.opcode == Opcode::kPing) return HandlePing(connection, static_cast<uint32_t>(request.number));
  if (request.opcode == Opcode::kRegisterNode) return HandleRegistration(connection, request.values[0]);
  if (request.opcode == Opcode::kSet) join_watch_.OnSet(connection.client, request.keys[0]);

  const size_t free_bytes = options_.max_bytes - std::min(used_bytes(), options_.max_bytes);
  std::vector<Reply> replies;
  const absl::Status status = key_value_.Apply(connection.id(), std::move(request), free_bytes, &replies);
  if (!status.ok()) Reject(connection, status.message());
  size_t reply_bytes = 0;
  for (Reply& reply : replies) {
    if (reply.client == connection.id()) {
      reply_bytes += reply.bytes.size();
      Send(connection, std::move(reply.bytes));
      continue;
    }
    Connection& other = *connections_.at(reply.client);
    Send(other, std::move(reply.bytes));
    Settle(other);
  }
  return reply_bytes;
}

size_t StoreServer::HandlePing(Connection& connection, uint32_t nonce) {
  std::string reply;
  AppendInteger(nonce, &reply);
  Send(connection, std::move(reply));
  JoinWatch::Client& client = connection.client;
  // The first PING of a connection, part of its start, carries the low 32 bits of the client's pid.
  if (!client.pids.empty() || connection.registers_node) return sizeof nonce;
  client.pids.push_back(nonce);
  // The client is blocked until it has its reply: a good moment to see whose child it is. Its launcher may
  // register later, so the ancestors are kept.
  while (client.address == kThisHost && client.pids.size() < kMaxAncestors &&
         !join_watch_.IsWorker(kThisHost, client.pids.back())) {
    const pid_t parent = options_.parent_of(static_cast<pid_t>(client.pids.back()));
    if (parent <= 1) break;
    client.pids.push_back(static_cast<uint32_t>(parent));
  }
  join_watch_.OnClient(client);
  return sizeof nonce;
}

size_t StoreServer::HandleRegistration(Connection& connection, absl::string_view payload) {
  if (connection.registers_node) {
    Reject(connection, "a second registration");
    return 0;
  }
  connection.registers_node = true;
  absl::StatusOr<NodeRegistration> node = DecodeRegistration(payload);
  if (!node.ok()) {
    Reject(connection, node.status().message());
    return 0;
  }
  connection.registration = std::make_unique<NodeRegistration>(*std::move(node));
  return join_watch_.has_round() ? Register(connection) : 0;
}

size_t StoreServer::Register(Connection& connection) {
  const std::unique_ptr<NodeRegistration> node = std::move(connection.registration);
  const absl::Status status = join_watch_.Register(*node, connection.client.address);
  if (!status.ok()) {
    Reject(connection, status.message());
    return 0;
  }
  Send(connection, std::string(1, static_cast<char>(kRegistered)));
  return 1;
}

void StoreServer::Send(Connection& connection, std::string bytes) {
  if (!connection.closing && !connection.Send(std::move(bytes))) CloseLater(connection);
}

void StoreServer::Recount(Connection& connection) {
  const size_t held = connection.held_bytes();
  connection_bytes_ += held - connection.counted_bytes;
  connection.counted_bytes = held;
}

void StoreServer::Settle(Connection& connection) {
  if (connection.closing) {
    connection_bytes_ -= connection.counted_bytes;
    key_value_.Forget(connection.id());
    connections_.erase(connection.id());
    return;
  }
  Recount(connection);
  const bool wants_to_send = connection.unsent_bytes() > 0 || connection.paused;
  const uint32_t events = (connection.paused ? 0u : EPOLLIN) | (wants_to_send ? EPOLLOUT : 0u);
  if (events == connection.watched_events) return;
  connection.watched_events = events;
  epoll_event event = {};
  event.events = events;
  event.data.u64 = connection.id();
  // Can't fail: the descriptor is watched already.
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, connection.fd(), &event);
}

void StoreServer::Reject(Connection& connection, absl::string_view why) {
  CloseLater(connection);
  if (warnings_left_ == 0) return;
  --warnings_left_;
  const JoinWatch::Client& client = connection.client;
  const std::string pid = client.pids.empty() ? "" : absl::StrCat(" (pid ", client.pids[0], ")");
  // What has not even begun like a worker is a port scanner or a browser.
  options_.log(connection.validated ? LogLevel::kWarning : LogLevel::kDebug,
               absl::StrCat("store: closed the connection from ", client.address, pid, ": ", why));
}

}  // namespace ddprun::launcher
