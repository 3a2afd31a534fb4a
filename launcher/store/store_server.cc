#include "launcher/store/store_server.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/limits.h"
#include "base/secret.h"
#include "base/socket_address.h"
#include "base/status_macros.h"
#include "base/steady_time.h"
#include "launcher/io/file_descriptor.h"
#include "launcher/store/request_parser.h"

namespace ddprun::launcher {
namespace {

constexpr ClientId kListenerId = 0;
constexpr ClientId kTimerId = UINT64_MAX;

// Limits per turn, so that no client keeps the others (and the launcher) waiting.
constexpr int kEventsPerTurn = 64;
constexpr int kAcceptsPerTurn = 64;
constexpr int kRequestsPerTurn = 1024;
constexpr size_t kReplyBytesPerTurn = 4 * 1024 * 1024;
// While a client has more unsent output than this, its requests are not handled.
constexpr size_t kPauseAtUnsentBytes = 1024 * 1024;

// Stands for all of this host's addresses, as local clients may use any of them.
constexpr absl::string_view kThisHost = "this host";
// Limit of ancestors to examine; workers have far fewer wrappers.
constexpr int kMaxAncestors = 32;

UniqueFd OpenSpare() { return UniqueFd(open("/dev/null", O_RDONLY | O_CLOEXEC)); }

void SetOptions(int fd) {
  const int one = 1;
  const int idle_s = 10;
  const int interval_s = 5;
  const int probes = 3;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  // Connections of a host that has vanished end after 25 s.
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof interval_s);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
}

}  // namespace

absl::StatusOr<std::unique_ptr<StoreServer>> StoreServer::Open(StoreOptions options) {
  DDPRUN_ASSIGN_OR_RETURN(auto listener, Listen(options.address, options.first_port, options.last_port));
  UniqueFd epoll(epoll_create1(EPOLL_CLOEXEC));
  UniqueFd timer(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  UniqueFd spare = OpenSpare();
  if (!epoll.valid() || !timer.valid() || !spare.valid()) return ErrnoStatus(errno, "can't set up the store");
  for (const auto& [fd, id] : {std::pair(listener.fd.get(), kListenerId), std::pair(timer.get(), kTimerId)}) {
    epoll_event event = {};
    event.events = EPOLLIN;
    event.data.u64 = id;
    if (epoll_ctl(epoll.get(), EPOLL_CTL_ADD, fd, &event) != 0) return ErrnoStatus(errno, "can't set up the store");
  }
  return std::unique_ptr<StoreServer>(
      new StoreServer(std::move(options), std::move(listener), std::move(epoll), std::move(timer), std::move(spare)));
}

StoreServer::StoreServer(StoreOptions options, Listener listener, UniqueFd epoll, UniqueFd timer, UniqueFd spare)
    : options_(std::move(options)),
      listener_(std::move(listener)),
      epoll_(std::move(epoll)),
      timer_(std::move(timer)),
      spare_(std::move(spare)),
      key_value_(options_.max_bytes),
      pending_(options_.pending) {}

StoreServer::~StoreServer() = default;

void StoreServer::BeginRound(uint64_t round, int world_size) {
  join_watch_.BeginRound(round, world_size);
  std::vector<ClientId> early;
  for (const auto& [id, connection] : connections_) {
    if (connection->registration != nullptr) early.push_back(id);
  }
  for (const ClientId id : early) {
    const auto it = connections_.find(id);
    if (it == connections_.end()) continue;
    Register(*it->second);
    Settle(*it->second);
  }
}

absl::Status StoreServer::RegisterLocal(const NodeRegistration& node) { return join_watch_.Register(node, kThisHost); }

std::vector<WaitingClient> StoreServer::Waiting() const {
  std::vector<WaitingClient> waiting;
  for (KeyValue::Pending& pending : key_value_.PendingWaits()) {
    const JoinWatch::Client& client = connections_.at(pending.client)->client;
    WaitingClient one;
    one.number = pending.number;
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
    if (events[i].data.u64 == kTimerId) {
      OnTimer();
      continue;
    }
    // An earlier event may have closed this connection.
    const auto it = connections_.find(events[i].data.u64);
    if (it != connections_.end()) OnEvents(*it->second, events[i].events);
  }
}

void StoreServer::Accept() {
  for (int i = 0; i < kAcceptsPerTurn; ++i) {
    SocketAddress peer;
    UniqueFd fd(accept4(listener_.fd.get(), peer.get(), &peer.size, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd.valid() && (errno == EMFILE || errno == ENFILE)) {
      ReportOutOfFiles();
      // The pending connection would keep the loop spinning: accept and close it. The client retries.
      spare_.reset();
      fd.reset(accept4(listener_.fd.get(), nullptr, nullptr, SOCK_CLOEXEC));
      fd.reset();
      spare_ = OpenSpare();
      return;
    }
    if (!fd.valid() && (errno == EINTR || errno == ECONNABORTED)) continue;
    if (!fd.valid()) return;
    if (static_cast<int>(connections_.size()) >= options_.max_connections) continue;
    std::optional<Origin> origin = OriginOf(fd.get(), peer);
    if (!origin) continue;
    SetOptions(fd.get());
    AddConnection(std::move(fd), *std::move(origin));
  }
}

std::optional<StoreServer::Origin> StoreServer::OriginOf(int fd, const SocketAddress& peer) {
  SocketAddress own;
  if (getsockname(fd, own.get(), &own.size) != 0) return std::nullopt;
  const std::string address = AddressText(peer);
  // Check even if a node has registered the address: a local process may use any address of this host.
  const absl::StatusOr<uid_t> user = options_.user_of ? options_.user_of(peer, own) : socket_owner_.UserOf(peer, own);
  if (user.ok()) {
    if (IsRootOrOwnUser(*user)) return Origin{std::string(kThisHost), false};
    Warn(absl::StrCat("store: refused a connection of user ", *user, " on this host; only user ", geteuid(),
                      " and root may connect"));
    return std::nullopt;
  }
  if (absl::IsFailedPrecondition(user.status())) return std::nullopt;
  if (absl::IsUnavailable(user.status()) && (IsLoopback(peer) || AddressText(own) == address)) {
    Warn("store: can't tell which user connects (no sock_diag, no /proc/net/tcp); every user of this host may connect");
    return Origin{std::string(kThisHost), false};
  }
  const absl::string_view node = nodes_.NodeAt(address);
  if (node.empty()) return Origin{address, true};
  return Origin{std::string(node), false};
}

void StoreServer::AddConnection(UniqueFd fd, Origin origin) {
  const ClientId id = next_client_++;
  if (!pending_.Add(id, origin.stranger ? origin.address : "", SteadyNow())) {
    return Warn(absl::StrCat("store: refused a connection from ", origin.address,
                             ": no node of this round has that address, and it has too many connections"));
  }
  auto connection = std::make_unique<Connection>(id, std::move(fd), std::move(origin.address), options_.request);
  connection->stranger = origin.stranger;
  connection->watched_events = EPOLLIN;
  epoll_event event = {};
  event.events = EPOLLIN;
  event.data.u64 = id;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, connection->fd(), &event) != 0) return pending_.Remove(id);
  Connection& added = *connection;
  connections_.emplace(id, std::move(connection));
  if (!added.stranger && added.client.address != kThisHost && !Admit(added)) CloseLater(added);
  Settle(added);
  if (const std::optional<ClientId> surplus = pending_.Surplus()) CloseNow(*surplus);
  SetTimer();
}

void StoreServer::SetTimer() {
  const SteadyTime next = pending_.NextDeadline();
  if (timer_set_ || next == SteadyTime::InfiniteFuture()) return;
  itimerspec once = {};
  once.it_value = absl::ToTimespec(std::max(next - SteadyNow(), absl::Nanoseconds(1)));
  timer_set_ = timerfd_settime(timer_.get(), 0, &once, nullptr) == 0;
}

void StoreServer::OnTimer() {
  uint64_t times = 0;
  (void)!read(timer_.get(), &times, sizeof times);
  timer_set_ = false;
  const SteadyTime now = SteadyNow();
  while (const std::optional<ClientId> id = pending_.Expired(now)) {
    const Connection& connection = *connections_.at(*id);
    if (connection.stage == ConnectionStage::kHeld && refused_.insert(connection.client.address).second) {
      Warn(absl::StrCat("store: refused ", connection.client.address, ": no launcher of this round registered that ",
                        "address within ", absl::FormatDuration(options_.pending.patience),
                        "; a worker must connect from an address of its launcher's host"));
    }
    CloseNow(*id);
  }
  SetTimer();
}

void StoreServer::CloseNow(ClientId id) {
  Connection& connection = *connections_.at(id);
  CloseLater(connection);
  Settle(connection);
}

void StoreServer::OnEvents(Connection& connection, uint32_t events) {
  if (connection.stage == ConnectionStage::kHeld) {
    if ((events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) CloseLater(connection);
    return Settle(connection);
  }
  if (connection.unsent_bytes() > 0 && !connection.Flush()) CloseLater(connection);
  // After an error there may still be requests to read first.
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
    if (connection.stage == ConnectionStage::kOpening && !MayHandleNext(connection)) return;
    if (connection.registration != nullptr) {
      // Nothing else is read from a launcher before it has registered.
      if (connection.parser().next_opcode()) Reject(connection, "a request before the reply to the registration");
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

bool StoreServer::MayHandleNext(Connection& connection) {
  const std::optional<uint8_t> opcode = connection.parser().next_opcode();
  if (!opcode) return false;
  if (!connection.validated) {
    // Checked before any of its data is kept.
    if (*opcode == static_cast<uint8_t>(Opcode::kValidate)) return true;
    Reject(connection, "the first request was not VALIDATE");
    return false;
  }
  if (*opcode == static_cast<uint8_t>(Opcode::kRegisterNode)) return true;
  if (connection.stranger) {
    connection.stage = ConnectionStage::kHeld;
    return false;
  }
  Serve(connection);
  return true;
}

size_t StoreServer::HandleRequest(Connection& connection, Request request) {
  const bool is_validate = request.opcode == Opcode::kValidate;
  if (is_validate == connection.validated || (is_validate && request.number != kValidateMagic)) {
    Reject(connection, "a wrong or second VALIDATE");
    return 0;
  }
  connection.validated = true;
  if (is_validate) return 0;
  const bool registers = request.opcode == Opcode::kRegisterNode;
  const bool is_evidence = request.opcode == Opcode::kEvidence;
  if (connection.stage != (registers     ? ConnectionStage::kOpening
                           : is_evidence ? ConnectionStage::kLauncher
                                         : ConnectionStage::kClient)) {
    Reject(connection, "a connection is either a worker's or a launcher's");
    return 0;
  }
  if (request.opcode == Opcode::kPing) return HandlePing(connection, static_cast<uint32_t>(request.number));
  if (registers) return HandleRegistration(connection, request.values[0]);
  if (is_evidence) {
    options_.on_evidence(request.values[0]);
    return 0;
  }
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
  // The first PING of a connection, sent when it is set up, carries the low 32 bits of the client's pid.
  if (!client.pids.empty()) return sizeof nonce;
  client.pids.push_back(nonce);
  // The client is blocked until it receives the reply, so its ancestors can be read now. They are kept because its
  // launcher may register later.
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
  connection.stage = ConnectionStage::kLauncher;
  absl::StatusOr<NodeRegistration> node = DecodeRegistration(payload);
  if (!node.ok()) {
    Reject(connection, node.status().message());
    return 0;
  }
  // Reject a wrong secret now instead of holding the connection until the round is known.
  if (const absl::Status status = CheckSecret(*node); !status.ok() && !node->secret.empty()) {
    Reject(connection, status.message());
    return 0;
  }
  connection.registration = std::make_unique<NodeRegistration>(*std::move(node));
  return join_watch_.has_round() ? Register(connection) : 0;
}

size_t StoreServer::Register(Connection& connection) {
  const std::unique_ptr<NodeRegistration> node = std::move(connection.registration);
  const std::string address = connection.client.address;
  absl::Status status = CheckSecret(*node);
  if (status.ok()) status = join_watch_.Register(*node, address);
  if (!status.ok()) {
    Reject(connection, status.message());
    return 0;
  }
  pending_.Remove(connection.id());
  if (address != kThisHost) {
    nodes_.Add(address, node->addresses, static_cast<int>(node->pids.size()));
    if (connection.stranger && !Admit(connection)) CloseLater(connection);
    ServeHeld(address);
    for (const std::string& other : node->addresses) ServeHeld(other);
  }
  Send(connection, std::string(1, static_cast<char>(kRegistered)));
  return 1;
}

absl::Status StoreServer::CheckSecret(const NodeRegistration& node) const {
  if (options_.secret.empty()) return absl::OkStatus();
  if (SecretsEqual(node.secret, options_.secret)) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat("host ", node.host, " registered without the secret of this store: it is not in this round"));
}

bool StoreServer::Admit(Connection& connection) {
  connection.client.address = std::string(nodes_.NodeAt(connection.client.address));
  connection.stranger = false;
  if (!nodes_.Connect(connection.client.address)) {
    Warn(absl::StrCat("store: refused a connection from ", connection.client.address,
                      ": that node has too many connections"));
    return false;
  }
  connection.node = connection.client.address;
  return true;
}

void StoreServer::Serve(Connection& connection) {
  connection.stage = ConnectionStage::kClient;
  pending_.Remove(connection.id());
}

void StoreServer::ServeHeld(absl::string_view address) {
  for (const ClientId id : pending_.Of(address)) {
    const auto it = connections_.find(id);
    if (it == connections_.end() || !it->second->stranger) continue;
    Connection& connection = *it->second;
    if (!Admit(connection)) {
      CloseLater(connection);
    } else if (connection.stage == ConnectionStage::kHeld) {
      Serve(connection);
      HandleRequests(connection);
    }
    Settle(connection);
  }
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
    pending_.Remove(connection.id());
    if (!connection.node.empty()) nodes_.Disconnect(connection.node);
    connections_.erase(connection.id());
    return;
  }
  Recount(connection);
  const bool wants_to_send = connection.unsent_bytes() > 0 || connection.paused;
  const uint32_t events = connection.stage == ConnectionStage::kHeld
                              ? EPOLLRDHUP
                              : (connection.paused ? 0u : EPOLLIN) | (wants_to_send ? EPOLLOUT : 0u);
  if (events == connection.watched_events) return;
  connection.watched_events = events;
  epoll_event event = {};
  event.events = events;
  event.data.u64 = connection.id();
  // Can't fail: the descriptor is already watched.
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, connection.fd(), &event);
}

void StoreServer::Reject(Connection& connection, absl::string_view why) {
  CloseLater(connection);
  // A peer that has not sent VALIDATE is a port scanner or a browser.
  if (!connection.validated) return;
  const JoinWatch::Client& client = connection.client;
  const std::string pid = client.pids.empty() ? "" : absl::StrCat(" (pid ", client.pids[0], ")");
  Warn(absl::StrCat("store: closed the connection from ", client.address, pid, ": ", why));
}

void StoreServer::Warn(absl::string_view text) {
  if (warnings_left_ == 0) return;
  --warnings_left_;
  options_.log(LogLevel::kWarning, text);
}

}  // namespace ddprun::launcher
