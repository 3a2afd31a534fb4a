#include "launcher/process/child_watch.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/process.h"
#include "base/status_macros.h"
#include "launcher/io/file_descriptor.h"
#include "launcher/process/proc_files.h"

namespace ddprun::launcher {

std::string ProcessEnd::Text() const {
  if (kind == Kind::kExited) return absl::StrCat("exited with code ", code);
  return absl::StrCat("killed by ", SignalName(code), " (", code, ")");
}

ProcessEnd ProcessEnd::FromWait(pid_t pid, int wait_status) {
  ProcessEnd end;
  end.pid = pid;
  if (WIFSIGNALED(wait_status)) {
    end.kind = Kind::kSignaled;
    end.code = WTERMSIG(wait_status);
    end.dumped = WCOREDUMP(wait_status);
  } else {
    end.code = WEXITSTATUS(wait_status);
  }
  return end;
}

namespace {

constexpr int kEndsPerCall = 1024;

// REQUIRES: `pid` is a child that has exited and was not reaped (its pidfd is readable). Returns nullopt while a
// debugger that traces the child holds it; the pidfd becomes readable again later.
std::optional<ProcessEnd> KillGroupAndReap(pid_t pid) {
  // Fails if the group is empty, or has only processes that we may not kill.
  kill(-pid, SIGKILL);
  int status = 0;
  if (waitpid(pid, &status, WNOHANG) != pid) return std::nullopt;
  return ProcessEnd::FromWait(pid, status);
}

// REQUIRES: `pid` has exited and was not reaped. Returns the signal that ended it; 0 if none did, or it is not known.
int SignalThatEnded(pid_t pid) {
  siginfo_t info{};
  if (waitid(P_PID, pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0) return 0;
  return info.si_code == CLD_KILLED || info.si_code == CLD_DUMPED ? info.si_status : 0;
}

bool HasExited(const UniqueFd& pidfd) {
  pollfd waited{pidfd.get(), POLLIN, 0};
  return poll(&waited, 1, 0) > 0;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ChildWatch>> ChildWatch::Create(EventLoop* loop, Callback callback) {
  UniqueFd ready(epoll_create1(EPOLL_CLOEXEC));
  if (!ready.valid()) return ErrnoStatus(errno, "epoll_create1");
  const int fd = ready.get();
  std::unique_ptr<ChildWatch> watch(new ChildWatch(loop, std::move(ready), std::move(callback)));
  DDPRUN_RETURN_IF_ERROR(loop->AddFd(fd, EPOLLIN, [w = watch.get()](uint32_t) { w->OnReady(); }));
  return watch;
}

ChildWatch::ChildWatch(EventLoop* loop, UniqueFd ready, Callback callback)
    : loop_(loop), ready_(std::move(ready)), callback_(std::move(callback)) {}

ChildWatch::~ChildWatch() { loop_->RemoveFd(ready_.get()); }

absl::Status ChildWatch::Watch(Child child) {
  epoll_event event{};
  // Edge-triggered because a traced child can't be reaped yet, see KillGroupAndReap.
  event.events = EPOLLIN | EPOLLET;
  event.data.u64 = child.pid;
  if (epoll_ctl(ready_.get(), EPOLL_CTL_ADD, child.pidfd.get(), &event) != 0) {
    return ErrnoStatus(errno, absl::StrCat("watching process ", child.pid));
  }
  const pid_t pid = child.pid;
  children_.insert_or_assign(pid, Watched{std::move(child), 0, {}});
  return absl::OkStatus();
}

bool ChildWatch::Signal(pid_t pid, int signal) {
  const auto found = children_.find(pid);
  if (found == children_.end()) return false;
  for (const auto& [heir, pidfd] : found->second.heirs) SignalPidfd(pidfd.get(), signal);
  if (signal != SIGCONT && found->second.heirs.empty()) found->second.signal = signal;
  kill(pid, signal);
  return true;
}

bool ChildWatch::SignalGroup(pid_t pid, int signal) {
  if (children_.count(pid) == 0) return false;
  // A newly created child may not lead its group yet.
  if (kill(-pid, signal) != 0 && errno == ESRCH) kill(pid, signal);
  return true;
}

std::vector<pid_t> ChildWatch::pids() const {
  std::vector<pid_t> result;
  result.reserve(children_.size());
  for (const auto& [pid, child] : children_) result.push_back(pid);
  return result;
}

bool ChildWatch::HasHeirs(Watched* watched) {
  std::map<pid_t, UniqueFd>& heirs = watched->heirs;
  std::erase_if(heirs, [](const auto& heir) { return HasExited(heir.second); });  // closing ends its registration
  const pid_t pid = watched->child.pid;
  if (watched->signal == 0 || SignalThatEnded(pid) != watched->signal) return false;
  for (const pid_t heir : ChildrenOfMainThread()) {
    if (heir == pid || heirs.contains(heir) || getpgid(heir) != pid) continue;
    UniqueFd pidfd = OpenPidfd(heir);
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = pid;
    if (!pidfd.valid() || HasExited(pidfd) || IgnoresSignal(heir, watched->signal)) continue;
    if (epoll_ctl(ready_.get(), EPOLL_CTL_ADD, pidfd.get(), &event) != 0) continue;
    kill(heir, watched->signal);
    kill(heir, SIGCONT);
    heirs.emplace(heir, std::move(pidfd));
  }
  return !heirs.empty();
}

void ChildWatch::OnReady() {
  epoll_event events[kEndsPerCall];
  const int count = epoll_wait(ready_.get(), events, kEndsPerCall, 0);
  if (count <= 0) return;
  std::vector<ProcessEnd> ends;
  ends.reserve(count);
  for (int i = 0; i < count; ++i) {
    const pid_t pid = static_cast<pid_t>(events[i].data.u64);
    const auto found = children_.find(pid);
    if (found == children_.end() || HasHeirs(&found->second)) continue;
    const Child& child = found->second.child;
    const std::optional<ProcessEnd> end = KillGroupAndReap(pid);
    if (!end.has_value()) continue;
    ends.push_back(*end);
    epoll_ctl(ready_.get(), EPOLL_CTL_DEL, child.pidfd.get(), nullptr);
    children_.erase(found);
  }
  if (!ends.empty()) callback_(std::move(ends));
}

}  // namespace ddprun::launcher
