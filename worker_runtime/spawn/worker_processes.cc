#include "worker_runtime/spawn/worker_processes.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "worker_contract/environment.h"

namespace ddprun {
namespace {

// Defined here because glibc has P_PIDFD only from 2.36 on.
constexpr idtype_t kWaitByPidfd = static_cast<idtype_t>(3);

std::vector<char*> Pointers(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (const std::string& s : strings) pointers.push_back(const_cast<char*>(s.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// posix_spawn's two argument objects, released by the destructor.
class SpawnArguments {
 public:
  SpawnArguments() {
    posix_spawnattr_init(&attributes);
    posix_spawn_file_actions_init(&actions);
  }
  ~SpawnArguments() {
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
  }
  SpawnArguments(const SpawnArguments&) = delete;
  SpawnArguments& operator=(const SpawnArguments&) = delete;

  posix_spawnattr_t attributes;
  posix_spawn_file_actions_t actions;
};

// Milliseconds for poll, rounded up so that it does not end just before the deadline; -1 for no deadline.
int PollTimeout(SteadyTime deadline) {
  if (deadline == SteadyTime::InfiniteFuture()) return -1;
  const absl::Duration rest = std::max(deadline - SteadyNow(), absl::ZeroDuration());
  return static_cast<int>(std::min<int64_t>(absl::ToInt64Milliseconds(absl::Ceil(rest, absl::Milliseconds(1))),
                                            std::numeric_limits<int>::max()));
}

namespace contract = worker_contract;

bool IsSet(const std::vector<std::string>& environment, absl::string_view name) {
  return std::any_of(environment.begin(), environment.end(),
                     [&](const std::string& entry) { return absl::StartsWith(entry, absl::StrCat(name, "=")); });
}

}  // namespace

ProcessSet::~ProcessSet() {
  Signal(SIGKILL);
  while (running() > 0) Wait(SteadyTime::InfiniteFuture());
}

absl::Status ProcessSet::Start(const Command& command) {
  SpawnArguments arguments;
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setflags(&arguments.attributes, POSIX_SPAWN_SETSIGMASK);
  posix_spawnattr_setsigmask(&arguments.attributes, &none);
  posix_spawn_file_actions_addopen(&arguments.actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  if (command.inherited_fd >= 0) {
    // dup2 onto itself clears close-on-exec, in the child only.
    posix_spawn_file_actions_adddup2(&arguments.actions, command.inherited_fd, command.inherited_fd);
  }
  const std::vector<char*> argv = Pointers(command.argv), environment = Pointers(command.environment);
  Child child;
  int error = posix_spawn(&child.pid, command.program.c_str(), &arguments.actions, &arguments.attributes, argv.data(),
                          environment.data());
  if (error != 0) {
    return absl::UnavailableError(absl::StrCat("executing ", command.program, ": ", strerror(error)));
  }
  child.pidfd = static_cast<int>(syscall(SYS_pidfd_open, child.pid, 0));
  if (child.pidfd < 0) {
    error = errno;
    kill(child.pid, SIGKILL);
    waitpid(child.pid, nullptr, 0);
    if (error == ENOSYS) return absl::UnimplementedError("this kernel has no pidfd; Linux 5.4 or later is needed");
    return absl::UnavailableError(absl::StrCat("watching a new process: ", strerror(error)));
  }
  children_.push_back(child);
  return absl::OkStatus();
}

std::vector<ProcessSet::End> ProcessSet::Wait(SteadyTime deadline) {
  std::vector<pollfd> fds;
  for (const Child& child : children_) fds.push_back({child.pidfd, POLLIN, 0});  // poll ignores -1
  int ready = 0;
  while ((ready = poll(fds.data(), fds.size(), PollTimeout(deadline))) < 0 && errno == EINTR) {
  }
  std::vector<End> ends;
  for (size_t i = 0; i < fds.size() && ready > 0; ++i) {
    if (fds[i].revents != 0) ends.push_back(Reap(static_cast<int>(i), &children_[i]));
  }
  return ends;
}

ProcessSet::End ProcessSet::Reap(int index, Child* child) {
  siginfo_t info = {};
  while (waitid(kWaitByPidfd, child->pidfd, &info, WEXITED) != 0 && errno == EINTR) {
  }
  close(child->pidfd);
  child->pidfd = -1;
  return {index, info.si_code != CLD_EXITED, info.si_status};
}

int ProcessSet::running() const {
  return static_cast<int>(
      std::count_if(children_.begin(), children_.end(), [](const Child& c) { return c.pidfd >= 0; }));
}

void ProcessSet::Signal(int signal) {
  for (const Child& child : children_) {
    if (child.pidfd >= 0) syscall(SYS_pidfd_send_signal, child.pidfd, signal, nullptr, 0);
  }
}

std::string SpawnMark::Text() const { return absl::StrCat(call, ":", parent, ":", error_fd); }

std::optional<SpawnMark> SpawnMark::FromText(absl::string_view text) {
  const std::vector<absl::string_view> parts = absl::StrSplit(text, ':');
  SpawnMark mark;
  if (parts.size() != 3 || !absl::SimpleAtoi(parts[0], &mark.call) || !absl::SimpleAtoi(parts[1], &mark.parent) ||
      !absl::SimpleAtoi(parts[2], &mark.error_fd) || mark.call < 1 || mark.parent < 1 || mark.error_fd < 0) {
    return std::nullopt;
  }
  return mark;
}

std::string ErrorFileOf(int error_fd) { return absl::StrCat("/proc/self/fd/", error_fd); }

std::vector<std::string> EnvironmentOf(const SpawnedWorker& worker, const std::vector<std::string>& parents) {
  const std::pair<const char*, std::string> own[] = {
      {contract::kRank, absl::StrCat(worker.rank)},
      {contract::kWorldSize, absl::StrCat(worker.nprocs)},
      {contract::kLocalRank, absl::StrCat(worker.rank)},
      {contract::kLocalWorldSize, absl::StrCat(worker.nprocs)},
      {contract::kGroupRank, "0"},
      {contract::kGroupWorldSize, "1"},
      {contract::kMasterAddr, "127.0.0.1"},
      {contract::kMasterPort, absl::StrCat(worker.store_port)},
      {contract::kUseAgentStore, "True"},
      {contract::kErrorFile, ErrorFileOf(worker.mark.error_fd)},
      {kSpawnVariable, worker.mark.Text()},
  };
  const char* const foreign[] = {contract::kRoleName,     contract::kRoleRank,    contract::kRoleWorldSize,
                                 contract::kRestartCount, contract::kMaxRestarts, contract::kRunId,
                                 contract::kRound,        contract::kLauncherId,  contract::kWorkerLink};
  std::vector<std::string> environment;
  for (const std::string& entry : parents) {
    const absl::string_view name = absl::string_view(entry).substr(0, entry.find('='));
    const bool replaced = std::any_of(std::begin(own), std::end(own), [&](const auto& o) { return o.first == name; });
    if (!replaced && std::find(std::begin(foreign), std::end(foreign), name) == std::end(foreign)) {
      environment.push_back(entry);
    }
  }
  for (const auto& [name, value] : own) environment.push_back(absl::StrCat(name, "=", value));
  // Several processes with one thread per core each would compete for the cores.
  if (worker.nprocs > 1 && !IsSet(environment, contract::kOmpNumThreads)) {
    environment.push_back(absl::StrCat(contract::kOmpNumThreads, "=1"));
  }
  return environment;
}

}  // namespace ddprun
