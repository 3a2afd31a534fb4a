#include "worker_runtime/base/launcher_link.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/numbers.h"
#include "worker_contract/environment.h"

namespace ddprun {
namespace {

using worker_contract::LauncherLine;
using worker_contract::LinkHello;
using worker_contract::LinkProgress;
using worker_contract::LinkStop;
using worker_contract::WorkerLine;

constexpr double kReportsPerSecond = worker_contract::kMaxReportsPerSecond;

// A connected socket; -1: nobody of this user listens there.
int ConnectTo(absl::string_view address) {
  sockaddr_un to{};
  if (address.size() < 2 || address.size() > sizeof to.sun_path || address[0] != '@') return -1;
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  to.sun_family = AF_UNIX;
  // After a null byte: in the abstract namespace.
  std::copy(address.begin() + 1, address.end(), to.sun_path + 1);
  const socklen_t size = offsetof(sockaddr_un, sun_path) + address.size();
  ucred listener{};
  socklen_t listener_size = sizeof listener;
  if (connect(fd, reinterpret_cast<const sockaddr*>(&to), size) == 0 &&
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

LauncherLink::LauncherLink(absl::string_view address, int32_t rank, int32_t local_rank)
    : pid_(getpid()), allowance_(kReportsPerSecond), last_report_(SteadyNow()) {
  MutexLock lock(&mutex_);
  socket_ = ConnectTo(address);
  if (socket_ < 0) return;
  unsent_ =
      EncodeLine(WorkerLine(LinkHello{worker_contract::kLinkVersion, local_rank, rank, pid_, {"progress", "stop"}}));
  Flush();
}

LauncherLink::~LauncherLink() {
  MutexLock lock(&mutex_);
  Close();
}

LauncherLink& LauncherLink::OfProcess() {
  static LauncherLink& link = *[] {
    const char* const address = getenv(worker_contract::kWorkerLink);
    const std::optional<int32_t> rank = Number(worker_contract::kRank);
    const std::optional<int32_t> local_rank = Number(worker_contract::kLocalRank);
    if (address == nullptr || !rank || !local_rank) return new LauncherLink("", 0, 0);
    return new LauncherLink(address, *rank, *local_rank);
  }();
  return link;
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
  Receive();
  return stop_at_;
}

void LauncherLink::Flush() {
  while (socket_ >= 0 && (!unsent_.empty() || newest_)) {
    if (unsent_.empty()) unsent_ = EncodeLine(WorkerLine(*std::exchange(newest_, std::nullopt)));
    const ssize_t sent = send(socket_, unsent_.data(), unsent_.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent > 0) {
      unsent_.erase(0, sent);
    } else if (errno != EINTR) {
      if (errno != EAGAIN) Close();
      return;
    }
  }
}

void LauncherLink::Receive() {
  char bytes[worker_contract::kMaxLinkLine];
  while (socket_ >= 0) {
    const ssize_t got = recv(socket_, bytes, sizeof bytes, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) return Close();
    std::vector<std::string> lines;
    bool good = reader_.Read(absl::string_view(bytes, got), &lines).ok();
    for (const std::string& line : lines) {
      const absl::StatusOr<std::optional<LauncherLine>> decoded = worker_contract::DecodeLauncherLine(line);
      good = good && decoded.ok();
      if (!decoded.ok() || !decoded->has_value()) continue;
      if (const auto* stop = std::get_if<LinkStop>(&**decoded)) stop_at_ = SteadyNow() + stop->deadline;
    }
    if (!good) Close();
  }
}

void LauncherLink::Close() {
  if (socket_ >= 0) close(socket_);
  socket_ = -1;
}

}  // namespace ddprun
