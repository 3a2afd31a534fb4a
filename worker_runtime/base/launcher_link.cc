#include "worker_runtime/base/launcher_link.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/numbers.h"
#include "base/socket_address.h"
#include "worker_contract/environment.h"

namespace ddprun {
namespace {

using worker_contract::LauncherLinkMessage;
using worker_contract::LinkHello;
using worker_contract::LinkProgress;
using worker_contract::LinkStop;
using worker_contract::WorkerLinkMessage;

constexpr double kReportsPerSecond = worker_contract::kMaxReportsPerSecond;

// Returns a connected socket; -1: no process of this user listens there.
int ConnectTo(absl::string_view address) {
  const std::optional<UnixAddress> to = UnixAddress::Parse(address);
  if (!to.has_value()) return -1;
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  ucred listener{};
  socklen_t listener_size = sizeof listener;
  if (connect(fd, to->get(), to->size()) == 0 &&
      getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &listener, &listener_size) == 0 && listener.uid == geteuid()) {
    return fd;
  }
  close(fd);
  return -1;
}

std::optional<int32_t> Number(const char* name) {
  const char* const text = getenv(name);
  int32_t number = 0;
  if (text == nullptr || !absl::SimpleAtoi(text, &number)) return std::nullopt;
  return number;
}

}  // namespace

LauncherLink::LauncherLink(absl::string_view address, int32_t rank, int32_t local_rank,
                           std::optional<Listener> listener)
    : pid_(getpid()),
      rank_(rank),
      local_rank_(local_rank),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      allowance_(kReportsPerSecond),
      last_report_(SteadyNow()) {
  {
    MutexLock lock(&mutex_);
    socket_ = ConnectTo(address);
    if (!listener) Greet();
  }
  if (listener) Listen(*std::move(listener));
}

void LauncherLink::Greet() {
  if (socket_ < 0) return;
  LinkHello hello{worker_contract::kLinkVersion, local_rank_, rank_, pid_, {"progress", "stop"}};
  if (listens_) {
    hello.capabilities.push_back(worker_contract::kCanReform);
    hello.capabilities.push_back(worker_contract::kCanCheckpoint);
  }
  unsent_ += EncodeMessage(WorkerLinkMessage(std::move(hello)));
  Flush();
}

bool LauncherLink::Listen(Listener listener) {
  {
    MutexLock lock(&mutex_);
    if (std::exchange(listens_, true)) return false;
    Greet();
  }
  // Signals are handled by the trainer's threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  thread_ = std::thread([this, listener = std::move(listener)] { ReceiveLoop(listener); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return true;
}

LauncherLink::~LauncherLink() {
  {
    MutexLock lock(&mutex_);
    Close();
  }
  WakeListener();
  if (thread_.joinable()) thread_.join();
  if (to_close_ >= 0) close(to_close_);
  close(wake_);
}

LauncherLink& LauncherLink::OfProcess() {
  return FirstOfProcess([] { return std::nullopt; });
}

LauncherLink* LauncherLink::OfElasticProcess(Listener listener) {
  bool was_first = false;
  LauncherLink& link = FirstOfProcess([&] {
    was_first = true;
    return listener;
  });
  return was_first || link.Listen(std::move(listener)) ? &link : nullptr;
}

LauncherLink& LauncherLink::FirstOfProcess(absl::FunctionRef<std::optional<Listener>()> listener) {
  static LauncherLink& link = *[&] {
    const char* const address = getenv(worker_contract::kWorkerLink);
    const std::optional<int32_t> rank = Number(worker_contract::kRank);
    const std::optional<int32_t> local_rank = Number(worker_contract::kLocalRank);
    const bool launched = address != nullptr && rank && local_rank;
    return new LauncherLink(launched ? address : "", rank.value_or(0), local_rank.value_or(0), listener());
  }();
  return link;
}

bool LauncherLink::connected() {
  if (!OfThisProcess()) return false;
  MutexLock lock(&mutex_);
  return socket_ >= 0;
}

void LauncherLink::SendToLauncher(const WorkerLinkMessage& line) {
  if (!OfThisProcess()) return;
  {
    MutexLock lock(&mutex_);
    if (socket_ < 0) return;
    unsent_ += EncodeMessage(line);
    Flush();
    if (unsent_.empty()) return;
  }
  WakeListener();
}

void LauncherLink::WakeListener() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_, &one, sizeof one);
}

void LauncherLink::ReceiveLoop(const Listener& listener) {
  for (;;) {
    pollfd waits[2] = {{-1, POLLIN, 0}, {wake_, POLLIN, 0}};
    {
      MutexLock lock(&mutex_);
      waits[0].fd = socket_;
      if (!unsent_.empty()) waits[0].events |= POLLOUT;
    }
    if (waits[0].fd < 0) break;
    poll(waits, 2, /*timeout=*/-1);
    uint64_t woken = 0;
    [[maybe_unused]] const ssize_t drained = read(wake_, &woken, sizeof woken);
    std::vector<LauncherLinkMessage> heard;
    {
      MutexLock lock(&mutex_);
      heard = Receive();
      if (!unsent_.empty()) Flush();
    }
    for (const LauncherLinkMessage& line : heard) listener.heard(line);
  }
  listener.closed();
}

bool LauncherLink::OfThisProcess() const { return getpid() == pid_; }

void LauncherLink::Report(const LinkProgress& progress) {
  if (!OfThisProcess()) return;
  MutexLock lock(&mutex_);
  if (socket_ < 0) return;
  const SteadyTime now = SteadyNow();
  const double earned = kReportsPerSecond * absl::ToDoubleSeconds(now - last_report_);
  allowance_ = std::min(kReportsPerSecond, allowance_ + earned);
  last_report_ = now;
  newest_ = progress;
  if (allowance_ < 1) return;
  allowance_ -= 1;
  Flush();
}

std::optional<SteadyTime> LauncherLink::StopAt() {
  if (!OfThisProcess()) return std::nullopt;
  MutexLock lock(&mutex_);
  if (!listens_) Receive();
  return stop_at_;
}

void LauncherLink::Flush() {
  while (socket_ >= 0 && (!unsent_.empty() || newest_)) {
    if (unsent_.empty()) unsent_ = EncodeMessage(WorkerLinkMessage(*std::exchange(newest_, std::nullopt)));
    const ssize_t sent = send(socket_, unsent_.data(), unsent_.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent > 0) {
      unsent_.erase(0, sent);
    } else if (errno != EINTR) {
      if (errno != EAGAIN) Close();
      return;
    }
  }
}

std::vector<LauncherLinkMessage> LauncherLink::Receive() {
  std::vector<LauncherLinkMessage> heard;
  char bytes[worker_contract::kMaxLinkLine];
  while (socket_ >= 0) {
    const ssize_t got = recv(socket_, bytes, sizeof bytes, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) break;
    if (got <= 0) {
      Close();
      break;
    }
    std::vector<std::string> lines;
    bool good = reader_.Read(absl::string_view(bytes, got), &lines).ok();
    for (const std::string& line : lines) {
      absl::StatusOr<std::optional<LauncherLinkMessage>> decoded = worker_contract::DecodeLauncherMessage(line);
      good = good && decoded.ok();
      if (!decoded.ok() || !decoded->has_value()) continue;
      if (const auto* stop = std::get_if<LinkStop>(&**decoded)) stop_at_ = SteadyNow() + stop->deadline;
      heard.push_back(**std::move(decoded));
    }
    if (!good) Close();
  }
  return heard;
}

void LauncherLink::Close() {
  if (socket_ < 0) return;
  if (listens_) {
    // The thread may be polling the socket, so its number must not be reused before the thread has ended.
    shutdown(socket_, SHUT_RDWR);
    to_close_ = socket_;
  } else {
    close(socket_);
  }
  socket_ = -1;
}

}  // namespace ddprun
