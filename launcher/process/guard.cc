#include "launcher/process/guard.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "launcher/io/error_file.h"
#include "launcher/io/file_descriptor.h"
#include "launcher/process/proc_files.h"
#include "launcher/process/spawn_process.h"
#include "worker_contract/environment.h"

namespace ddprun::launcher {
namespace {

// argv[0] of a replacement guard. argv[1] and argv[2] are the launcher's id and pid; the socket is its standard input.
constexpr char kProgramName[] = "ddprun-guard";
// Limit for the guard to exit after the goodbye message.
constexpr int kGoodbyeMillis = 1000;

// Limits for killed processes to exit, and for the number of searches, in case processes are stuck in the kernel.
constexpr int kDeathWaitMillis = 1000;
constexpr int kSecondLookMillis = 100;
constexpr int kBlindWaitMillis = 10;  // for a process without a pidfd
constexpr int kMaxRounds = 30;
// While the launcher hangs, searches continue at the slower rate after this many.
constexpr int kQuickLooks = 20;
constexpr int kLaterLookMillis = 1000;
constexpr int kMostGenerations = 1000;

constexpr int kSocket = 3;  // descriptor number of the guard's end

// Marks start here: 73,000 years in microseconds.
constexpr rlim_t kLeastMark = rlim_t{1} << 61;

// Equal in all processes of this program.
rlim_t MarkOf(const std::string& id) { return kLeastMark | (std::hash<std::string>()(id) >> 3); }

bool IsMarked(pid_t pid, const std::string& id) {
  rlimit limit{};
  return prlimit(pid, RLIMIT_RTTIME, nullptr, &limit) == 0 && limit.rlim_cur == MarkOf(id);
}

// The guard of an inner launcher ends by itself, once it has killed what that launcher has started.
bool IsGuard(pid_t pid) {
  return ReadSmallFile(absl::StrCat("/proc/", pid, "/comm")) == absl::StrCat(kProgramName, "\n");
}

bool OwnedByUs(pid_t pid) {
  struct stat status;
  return stat(absl::StrCat("/proc/", pid).c_str(), &status) == 0 && status.st_uid == geteuid();
}

bool IsReadable(int fd, int timeout_millis) {
  pollfd waited{fd, POLLIN, 0};
  return poll(&waited, 1, timeout_millis) > 0;
}

// True if `pid` or one of its ancestors was created by `launcher`, or by the workers' parent on its behalf. Workers
// lead their own sessions; a child in the launcher's session existed before it (of a shell that executed the launcher).
bool DescendsFrom(pid_t pid, pid_t launcher, absl::FunctionRef<pid_t(pid_t)> parent_of) {
  for (int i = 0; i < kMostGenerations; ++i) {
    const pid_t parent = parent_of(pid);
    if (parent == launcher) return getsid(pid) != getsid(launcher);
    if (parent <= 1) return false;
    pid = parent;
  }
  return false;
}

// Kills every process that has the mark of `id`, names it, or descends from `launcher`; false if there was none.
// Descent is exact while the launcher is alive, because it is the subreaper of everything that its workers start.
bool KillRound(const std::string& id, pid_t launcher) {
  const pid_t self = getpid();
  if (getppid() != launcher) launcher = 0;  // dead; its pid may have been reused
  // Descendants first: finding them takes one small file per process, and usually there are no others.
  std::vector<pid_t> processes = AllProcesses();
  auto others = processes.begin();
  if (launcher != 0) {
    std::map<pid_t, pid_t> parents;
    for (const pid_t pid : processes) parents[pid] = ParentOf(pid);
    others = std::stable_partition(processes.begin(), processes.end(), [&](pid_t pid) {
      return DescendsFrom(pid, launcher, [&](pid_t child) { return parents[child]; });
    });
  }
  std::vector<UniqueFd> killed;
  for (auto it = processes.begin(); it != processes.end(); ++it) {
    const pid_t pid = *it;
    if (pid == self || pid == launcher || pid == 1 || !OwnedByUs(pid)) continue;
    // Open the pidfd before inspecting the process, so that the signal goes to the inspected process.
    UniqueFd pidfd = OpenPidfd(pid);
    // Where a seccomp filter refuses pidfd_open the signal could in theory go to a later process with this id.
    const bool refused = !pidfd.valid() && errno != ESRCH;
    if (refused ? IsZombie(pid) : !pidfd.valid() || IsReadable(pidfd.get(), 0)) {
      continue;  // dead, not reaped by the hanging launcher
    }
    const bool descends = it < others && DescendsFrom(pid, launcher, ParentOf);
    const auto is_named = [&] { return NamesLauncher(VariableOfProcess(pid, worker_contract::kLauncherId), id); };
    if ((!descends && !IsMarked(pid, id) && !is_named()) || IsGuard(pid)) continue;
    if (!SignalPidfd(pidfd.get(), SIGKILL) && (errno == ESRCH || kill(pid, SIGKILL) != 0)) continue;
    killed.push_back(std::move(pidfd));
  }
  const SteadyTime until = SteadyNow() + absl::Milliseconds(kDeathWaitMillis);
  for (const UniqueFd& pidfd : killed) {
    const int64_t left = absl::ToInt64Milliseconds(until - SteadyNow());
    IsReadable(pidfd.get(), std::clamp<int64_t>(left, 0, pidfd.valid() ? kDeathWaitMillis : kBlindWaitMillis));
  }
  return !killed.empty();
}

// Repeats until two searches in a row find nothing: a process that is about to execute another program briefly shows no
// environment.
void KillAll(const std::string& id) {
  bool found_before = true;
  for (int round = 0; round < kMaxRounds; ++round) {
    const bool found = KillRound(id, 0);
    if (!found && !found_before) return;
    if (!found) poll(nullptr, 0, kSecondLookMillis);
    found_before = found;
  }
}

// Drops everything inherited from the launcher except `socket`.
void Detach(int socket) {
  setsid();
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGPIPE, SIGUSR1, SIGUSR2, SIGTSTP}) {
    ::signal(signal, SIG_IGN);
  }
  prctl(PR_SET_NAME, kProgramName, 0, 0, 0);
  // Does not keep a file system busy. Can't fail, since the root always exists.
  if (chdir("/") != 0) return;
  dup2(socket, kSocket);
  // Descriptors 0, 1 and 2 stay open, so that no file opened later becomes a standard stream.
  const int null = open("/dev/null", O_RDWR);
  for (int fd = 0; fd < kSocket; ++fd) dup2(null, fd);
  syscall(SYS_close_range, kSocket + 1u, UINT_MAX, 0u);
}

// A message is either a time of the steady clock, in nanoseconds, or a goodbye of another size.
using KillTime = int64_t;
constexpr KillTime kNever = INT64_MAX;

int MillisUntil(KillTime time) {
  if (time == kNever) return -1;
  const int64_t left = time - absl::ToInt64Nanoseconds(SteadyNow().since_start());
  return left <= 0 ? 0 : static_cast<int>(std::min<int64_t>(left / 1'000'000 + 1, INT_MAX));
}

[[noreturn]] void GuardMain(int socket, const std::string& id, pid_t launcher) {
  Detach(socket);
  KillTime kill_time = kNever;
  while (true) {
    if (IsReadable(kSocket, MillisUntil(kill_time))) {
      KillTime word;
      const ssize_t got = recv(kSocket, &word, sizeof word, 0);
      if (got < 0 && errno == EINTR) continue;
      if (got == sizeof word) {
        kill_time = word;
        continue;
      }
      if (got <= 0) {
        KillAll(id);
        ErrorFolder::Remove(id);
      }
      _exit(0);
    }
    if (MillisUntil(kill_time) != 0) continue;  // interrupted
    kill_time = kNever;
    // A launcher that sends again has handled its workers, and may start others. Until then, repeated searches find
    // what it or its fork server was about to start.
    for (int looks = 0, pause = 0; !IsReadable(kSocket, pause); ++looks) {
      const bool found = KillRound(id, launcher);
      pause = found ? 0 : looks < kQuickLooks ? kSecondLookMillis : kLaterLookMillis;
    }
  }
}

}  // namespace

std::string LauncherIdForWorkers(absl::string_view inherited, absl::string_view own_id) {
  return inherited.empty() ? std::string(own_id) : absl::StrCat(inherited, ":", own_id);
}

void MarkProcess(pid_t pid, const std::string& id) {
  rlimit limit{};
  // A lower limit is the user's.
  if (prlimit(pid, RLIMIT_RTTIME, nullptr, &limit) != 0 || limit.rlim_cur < kLeastMark) return;
  limit.rlim_cur = MarkOf(id);
  prlimit(pid, RLIMIT_RTTIME, &limit, nullptr);
}

bool NamesLauncher(absl::string_view value, absl::string_view id) {
  for (const absl::string_view part : absl::StrSplit(value, ':')) {
    if (part == id) return !id.empty();
  }
  return false;
}

absl::StatusOr<Guard> Guard::Start(const std::string& id) {
  int sockets[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0) return ErrnoStatus(errno, "socketpair");
  UniqueFd ours(sockets[0]);
  UniqueFd theirs(sockets[1]);
  const pid_t launcher = getpid();
  const pid_t pid = fork();
  if (pid < 0) return absl::ResourceExhaustedError("can't start the guard process: " + ProcessLimitText(errno));
  if (pid == 0) {
    ours.reset();
    GuardMain(theirs.get(), id, launcher);
  }
  Guard guard(id, pid, OpenPidfd(pid), std::move(ours));
  if (guard.process_.valid()) return guard;
  // A seccomp filter may refuse pidfd_open. A replacement comes with its pidfd.
  guard.Dismiss();
  DDPRUN_RETURN_IF_ERROR(guard.Replace());
  return guard;
}

Guard::Guard(std::string id, pid_t pid, UniqueFd process, UniqueFd socket)
    : id_(std::move(id)), pid_(pid), process_(std::move(process)), socket_(std::move(socket)) {}

Guard::~Guard() { Dismiss(); }

void Guard::RunIfAsked(int argc, char** argv) {
  if (argc == 3 && strcmp(argv[0], kProgramName) == 0) GuardMain(STDIN_FILENO, argv[1], atoi(argv[2]));
}

void Guard::KillWorkersAt(SteadyTime time) {
  kill_time_ = time;
  if (!socket_.valid()) return;
  const KillTime word = time == SteadyTime::InfiniteFuture() ? kNever : absl::ToInt64Nanoseconds(time.since_start());
  if (send(socket_.get(), &word, sizeof word, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0 || errno != EAGAIN) return;
  // The guard has not read hundreds of messages, and would act on outdated ones: replace it.
  kill(pid_, SIGKILL);
}

absl::Status Guard::Watch(EventLoop* loop) {
  loop_ = loop;
  return loop->AddFd(process_.get(), EPOLLIN, [this](uint32_t) { OnDeath(); });
}

void Guard::Unwatch() {
  if (loop_ != nullptr && process_.valid()) loop_->RemoveFd(process_.get());
  loop_ = nullptr;
}

void Guard::OnDeath() {
  const pid_t dead = pid_;
  loop_->RemoveFd(process_.get());
  waitpid(dead, nullptr, 0);
  socket_.reset();
  process_.reset();
  absl::Status status = absl::ResourceExhaustedError(absl::StrCat("it died ", replacements_, " times"));
  if (replacements_ < kMaxReplacements) {
    ++replacements_;
    status = Replace();
  }
  if (status.ok()) status = Watch(loop_);
  if (status.ok()) {
    Log(LogLevel::kWarning, absl::StrCat("the guard process ", dead, " was killed; started another one (", pid_, ")"));
  } else {
    Log(LogLevel::kError,
        absl::StrCat("the guard process ", dead, " was killed and can't be replaced: ", status.message(),
                     "; if this launcher hangs or is killed, its workers may keep running"));
  }
}

absl::Status Guard::Replace() {
  int sockets[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0) return ErrnoStatus(errno, "socketpair");
  UniqueFd ours(sockets[0]);
  const UniqueFd theirs(sockets[1]);
  SpawnRequest request;
  request.program = "/proc/self/exe";
  request.argv = {kProgramName, id_, absl::StrCat(getpid())};
  request.environment = OwnEnvironment();
  request.stdin_fd = theirs.get();
  request.dies_with_parent = false;
  DDPRUN_ASSIGN_OR_RETURN(Child child, CreateChild(request));
  child.gate.Open();
  pid_ = child.pid;
  process_ = std::move(child.pidfd);
  socket_ = std::move(ours);
  KillWorkersAt(kill_time_);
  return absl::OkStatus();
}

void Guard::Dismiss() {
  Unwatch();
  if (!socket_.valid()) return;
  const char goodbye = 1;
  // Fails if the guard was killed, or is stopped and has not read for a long time; neither matters now.
  send(socket_.get(), &goodbye, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
  pollfd ended{process_.get(), POLLIN, 0};
  if (!process_.valid() || poll(&ended, 1, kGoodbyeMillis) <= 0) kill(pid_, SIGKILL);
  socket_.reset();
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace ddprun::launcher
