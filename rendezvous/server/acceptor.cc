#include "rendezvous/server/acceptor.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/limits.h"
#include "base/socket_address.h"
#include "base/status_macros.h"

namespace ddprun::rendezvous {
namespace {

// Lost peers are detected by heartbeats; see the keepalive times in server.cc.
constexpr absl::Duration kUserTimeout = absl::Minutes(20);
constexpr int kAcceptsInTurn = 256;
constexpr int kPauseMs = 100;  // while the kernel has no descriptor; there is no notification when it has one
constexpr int kTurnMs = 10;    // for newcomers waiting for their turn
constexpr int kReserve = 64;

// A client starts with this preface and a SETTINGS frame, whose fourth byte is the type (RFC 9113, 3.4).
constexpr absl::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
constexpr size_t kFrameHeaderBytes = 9;
constexpr char kSettings = 4;
// In either protocol the client sends at least this many bytes before it waits for an answer.
constexpr size_t kFirstBytes = kPreface.size() + kFrameHeaderBytes;

// The first request of PyTorch's TCPStore client: its type and a magic number, as little-endian bytes.
constexpr absl::string_view kTcpStoreClient("\0\xce\xf7\x85\x3c", 5);

bool IsBeginning(Acceptor::Protocol protocol, absl::string_view bytes) {
  if (protocol == Acceptor::Protocol::kTls) return absl::StartsWith(bytes, "\x16\x03");  // a handshake record
  return absl::StartsWith(bytes, kPreface) && bytes[kPreface.size() + 3] == kSettings;
}

std::string PeerOf(int fd) {
  sockaddr_storage address = {};
  socklen_t size = sizeof address;
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return "a host";
  return PeerOfSocket(address).host;
}

int DescriptorLimit() {
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  return static_cast<int>(std::min<rlim_t>(limit.rlim_cur, 1 << 30));
}

uint64_t CookieOf(int fd) {
  uint64_t cookie = 0;
  socklen_t size = sizeof cookie;
  return getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &size) == 0 ? cookie : 0;
}

PeerAddress OwnEndOf(int fd) {
  sockaddr_storage address = {};
  socklen_t size = sizeof address;
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  return PeerOfSocket(address);
}

// Closes with a reset, so that the kernel keeps no state of the connection.
void Refuse(int fd) {
  const linger reset = {.l_onoff = 1, .l_linger = 0};
  setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
  close(fd);
}

void Watch(int epoll, int operation, int fd, uint32_t events) {
  epoll_event event = {};
  event.events = events;
  event.data.fd = fd;
  epoll_ctl(epoll, operation, fd, &event);
}

}  // namespace

Acceptor::Acceptor(Protocol protocol, const ConnectionLimits::Limits& limits)
    : protocol_(protocol),
      bounds_(limits),
      reserve_(std::min(kReserve, DescriptorLimit() / 8)),
      limit_(DescriptorLimit()),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      copy_(fcntl(wake_, F_DUPFD_CLOEXEC, 0)),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      limits_(limits) {}

Acceptor::~Acceptor() {
  Stop();
  for (const int fd : {wake_, copy_, epoll_}) close(fd);
}

absl::StatusOr<int> Acceptor::Listen(const Endpoint& address) {
  if (wake_ < 0 || copy_ < 0 || epoll_ < 0) return absl::InternalError(OutOfFilesText());
  if (IsEveryAddress(address.host) && address.port != 0) {
    // Both 0.0.0.0 and :: mean all addresses of both families, so the second one is already served.
    for (const Listeners& open : listeners_) {
      if (open.everywhere && open.port == address.port) return open.port;
    }
  }
  DDPRUN_ASSIGN_OR_RETURN(Listeners listeners, rendezvous::Listen(address, kUserTimeout));
  listeners_.push_back(std::move(listeners));
  return listeners_.back().port;
}

int Acceptor::Adopt(int listener, int port) {
  if (!listeners_.empty()) return port;
  listeners_.emplace_back();
  listeners_.back().fds = {listener};
  listeners_.back().port = port;
  listeners_.back().everywhere = true;
  return port;
}

void Acceptor::Start(std::function<void(int fd)> take) {
  take_ = std::move(take);
  Watch(epoll_, EPOLL_CTL_ADD, wake_, EPOLLIN);
  for (const Listeners& listeners : listeners_) {
    for (const int fd : listeners.fds) Watch(epoll_, EPOLL_CTL_ADD, fd, EPOLLIN);
  }
  thread_ = std::thread([this] { Run(); });
}

void Acceptor::Stop() {
  if (thread_.joinable()) {
    {
      MutexLock lock(&mutex_);
      stopping_ = true;
    }
    eventfd_write(wake_, 1);
    thread_.join();
  }
  listeners_.clear();
  while (!newcomers_.empty()) Close(newcomers_.begin());
}

bool Acceptor::OnStreamStarted(const PeerAddress& peer) {
  {
    MutexLock lock(&mutex_);
    const std::optional<Id> id = limits_.OnStreamStarted(peer, SteadyNow());
    if (!id.has_value()) return true;
    to_end_.push_back(*id);
  }
  eventfd_write(wake_, 1);
  return false;
}

void Acceptor::OnSessionStarted(const PeerAddress& peer) {
  MutexLock lock(&mutex_);
  limits_.OnSessionStarted(peer);
}

void Acceptor::OnSessionClosed(const PeerAddress& peer) {
  MutexLock lock(&mutex_);
  limits_.OnSessionClosed(peer);
}

std::vector<PeerAddress> Acceptor::LocalEndsOf(const PeerAddress& peer) {
  MutexLock lock(&mutex_);
  return limits_.LocalEndsOf(peer);
}

void Acceptor::Run() {
  while (true) {
    epoll_event events[64];
    const int count = epoll_wait(epoll_, events, std::size(events), SleepMs());
    SetPaused(false);
    for (int i = 0; i < count; ++i) {
      const int fd = events[i].data.fd;
      if (fd == wake_) {
        if (!OnWake()) return;
      } else if (by_fd_.contains(fd)) {
        OnBytes(fd);
      } else if (!paused_) {
        AcceptSome(fd);
      }
    }
    AdmitReadyNewcomers();
    CloseOverdue();
  }
}

bool Acceptor::OnWake() {
  eventfd_t ignored = 0;
  eventfd_read(wake_, &ignored);
  std::vector<Id> to_end;
  {
    MutexLock lock(&mutex_);
    if (stopping_) return false;
    to_end.swap(to_end_);
  }
  for (const Id& id : to_end) {
    if (End(id)) log_.Warn("closed a connection: too many streams on which no launcher has joined");
  }
  return true;
}

int Acceptor::SleepMs() const {
  if (paused_) return kPauseMs;
  if (!ready_.empty()) return kTurnMs;
  if (newcomers_.empty()) return -1;
  const absl::Duration wait = std::max(newcomers_.front().until - SteadyNow(), absl::ZeroDuration());
  return static_cast<int>(absl::ToInt64Milliseconds(wait)) + 1;
}

void Acceptor::SetPaused(bool paused) {
  if (std::exchange(paused_, paused) == paused) return;
  for (const Listeners& listeners : listeners_) {
    for (const int fd : listeners.fds) Watch(epoll_, EPOLL_CTL_MOD, fd, paused ? 0u : EPOLLIN);
  }
}

void Acceptor::AcceptSome(int listener) {
  for (int i = 0; i < kAcceptsInTurn; ++i) {
    sockaddr_storage address = {};
    socklen_t size = sizeof address;
    const int fd = accept4(listener, reinterpret_cast<sockaddr*>(&address), &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
      AddNewcomer(fd, PeerOfSocket(address));
    } else if (errno == EMFILE || errno == ENFILE) {
      ReportOutOfFiles();
      DisconnectOldest(reserve_);
      return SetPaused(true);
    } else if (errno == ENOBUFS || errno == ENOMEM) {
      log_.Warn("the kernel is out of memory for connections");
      return SetPaused(true);
    } else if (errno == EAGAIN) {
      return;
    }  // otherwise this one connection broke before it was accepted
  }
}

void Acceptor::AddNewcomer(int fd, const PeerAddress& peer) {
  const Id id{fd, CookieOf(fd)};
  const PeerAddress own = IsLoopbackAddress(peer.host) ? OwnEndOf(fd) : PeerAddress();
  absl::StatusOr<std::vector<Id>> surplus;
  {
    MutexLock lock(&mutex_);
    surplus = limits_.Open(id, peer, SteadyNow(), own);
  }
  if (!surplus.ok()) {
    Refuse(fd);
    return log_.Warn(absl::StrCat("refused a connection: ", surplus.status().message()));
  }
  for (const Id& oldest : *surplus) {
    if (End(oldest)) log_.Warn("too many connections: closed the oldest one on which no launcher has joined");
  }
  by_fd_[fd] = newcomers_.insert(newcomers_.end(), Newcomer{id, SteadyNow() + bounds_.first_bytes});
  Watch(epoll_, EPOLL_CTL_ADD, fd, EPOLLIN | EPOLLRDHUP | EPOLLET);
  // The kernel assigns the lowest free number, so all below are in use. The newcomer itself may have to be closed.
  if (const int missing = fd - (limit_ - reserve_) + 1; missing > 0) {
    ReportOutOfFiles();
    DisconnectOldest(missing);
  }
}

void Acceptor::OnBytes(int fd) {
  const Newcomers::iterator newcomer = by_fd_.at(fd);
  char buffer[kFirstBytes];
  const ssize_t got = recv(fd, buffer, sizeof buffer, MSG_PEEK);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got > 0 && absl::StartsWith(absl::string_view(buffer, got), kTcpStoreClient)) {
    log_.Warn(absl::StrCat("a torchrun, or another client of PyTorch's TCPStore, connects from ", PeerOf(fd),
                           " to the rendezvous server: all nodes of the job need ddprun"));
    return Close(newcomer);
  }
  if (got > 0 && static_cast<size_t>(got) < kFirstBytes) return;  // EPOLLET reports again when more arrive
  if (got <= 0 || !IsBeginning(protocol_, absl::string_view(buffer, got))) return Close(newcomer);
  if (AdmitNewcomer(newcomer)) return;
  Watch(epoll_, EPOLL_CTL_DEL, fd, 0);  // further bytes do not matter
  ready_.push_back(newcomer->id);
}

bool Acceptor::AdmitNewcomer(Newcomers::iterator newcomer) {
  const int fd = newcomer->id.fd;
  ConnectionLimits::Entry entry;
  {
    MutexLock lock(&mutex_);
    entry = limits_.Enter(newcomer->id, SteadyNow());
  }
  if (entry == ConnectionLimits::Entry::kLater) return false;
  if (entry == ConnectionLimits::Entry::kNever) {
    Close(newcomer);
    return true;
  }
  by_fd_.erase(fd);
  newcomers_.erase(newcomer);
  Watch(epoll_, EPOLL_CTL_DEL, fd, 0);
  take_(fd);
  return true;
}

void Acceptor::AdmitReadyNewcomers() {
  std::erase_if(ready_, [this](const Id& id) {
    const auto it = by_fd_.find(id.fd);
    return it == by_fd_.end() || it->second->id != id || AdmitNewcomer(it->second);
  });
}

void Acceptor::CloseOverdue() {
  while (!newcomers_.empty() && newcomers_.front().until <= SteadyNow()) Close(newcomers_.begin());
}

void Acceptor::Close(Newcomers::iterator newcomer) {
  Refuse(newcomer->id.fd);
  by_fd_.erase(newcomer->id.fd);
  newcomers_.erase(newcomer);
}

int Acceptor::DisconnectOldest(int count) {
  int ended = 0;
  while (ended < count) {
    std::optional<Id> oldest;
    {
      MutexLock lock(&mutex_);
      oldest = limits_.EvictOldest();
    }
    if (!oldest.has_value()) break;
    if (End(*oldest)) ++ended;
  }
  return ended;
}

bool Acceptor::End(const Id& id) {
  if (const auto it = by_fd_.find(id.fd); it != by_fd_.end()) {
    const bool same = it->second->id == id;
    if (same) Close(it->second);
    return same;
  }
  // gRPC may close the descriptor at any time and its number may be reused, so the check and the shutdown use a copy.
  if (dup3(id.fd, copy_, O_CLOEXEC) < 0) return false;
  const bool same = id.cookie != 0 && CookieOf(copy_) == id.cookie;
  if (same) shutdown(copy_, SHUT_RDWR);
  dup3(wake_, copy_, O_CLOEXEC);  // releases the socket
  return same;
}

}  // namespace ddprun::rendezvous
