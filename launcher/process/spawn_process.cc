#include "launcher/process/spawn_process.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/limits.h"
#include "base/status_macros.h"
#include "launcher/io/file_descriptor.h"
#include "launcher/process/hardware.h"
#include "launcher/process/resolve_program.h"
#include "worker_contract/exit_codes.h"

namespace ddprun::launcher {

absl::StatusOr<StartGate::Ends> StartGate::Create() {
  int sockets[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) return ErrnoStatus(errno, "socketpair");
  Ends ends;
  ends.launcher.socket_.reset(sockets[0]);
  ends.process.reset(sockets[1]);
  return ends;
}

void StartGate::Open() {
  const char go = 1;
  // Fails only if the process has exited, which its pidfd reports.
  send(socket_.get(), &go, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

std::optional<int> StartGate::TakeError() {
  int error = 0;
  if (!socket_.valid() || recv(socket_.get(), &error, sizeof error, MSG_DONTWAIT) != sizeof error) return std::nullopt;
  return error;
}

// The child is a copy of one of several threads: instrumentation must not wait for a lock that another thread held.
#define DDPRUN_NO_SANITIZE __attribute__((no_sanitize("address", "undefined", "thread")))
namespace {

constexpr int kSignals = 64;
constexpr size_t kSignalSetSize = kSignals / 8;  // the kernel's sigsetsize

// Zero is SIG_DFL without flags in the kernel's struct sigaction, whose size differs between architectures.
constexpr uint64_t kDefaultAction[8] = {};
// SIG_IGN: the handler is the first field, except on architectures that LibTorch does not support.
constexpr uint64_t kIgnore[8] = {1};

// Everything the child needs, prepared before it exists: between clone and exec nothing is allocated, and only system
// calls are made.
struct ChildPlan {
  const char* program;
  char* const* argv;
  char* const* envp;
  int gate;
  int fds[3];
  const int* passed_fds;
  size_t passed_fd_count;
  const int* kept_fds;  // ascending, from 3 on; all others are closed
  size_t kept_fd_count;
  uint64_t ignored;          // bit n-1 is signal n
  const rlimit* file_limit;  // null: unchanged
  const unsigned long* cpu_mask;
  size_t cpu_mask_bytes;  // 0: unchanged
  bool dies_with_parent;
  pid_t parent;
};

[[noreturn]] DDPRUN_NO_SANITIZE void Fail(const ChildPlan& plan) {
  const int error = errno;
  syscall(SYS_sendto, plan.gate, &error, sizeof error, MSG_NOSIGNAL | MSG_DONTWAIT, nullptr, 0);
  while (true) syscall(SYS_exit_group, worker_contract::kExitNotFound);
}

DDPRUN_NO_SANITIZE void CloseOthers(const ChildPlan& plan) {
  unsigned first = 3;
  for (size_t i = 0; i < plan.kept_fd_count; ++i) {
    const unsigned kept = plan.kept_fds[i];
    // Fails before Linux 5.9, where only exec closes them.
    if (kept > first) syscall(SYS_close_range, first, kept - 1, 0u);
    first = kept + 1;
  }
  if (plan.kept_fd_count > 0) syscall(SYS_close_range, first, UINT_MAX, 0u);
}

[[noreturn]] DDPRUN_NO_SANITIZE void ChildMain(const ChildPlan& plan) {
  syscall(SYS_setsid);
  if (plan.dies_with_parent) {
    syscall(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    // The launcher may have died before the prctl took effect.
    if (syscall(SYS_getppid) != plan.parent) syscall(SYS_exit_group, worker_contract::ExitCodeOfSignal(SIGKILL));
  }
  CloseOthers(plan);
  for (int target = 0; target < 3; ++target) {
    const int source = plan.fds[target];
    if (source < 0) continue;
    // dup3 rejects equal numbers, whose descriptor only needs to stay open.
    const long result =
        source == target ? syscall(SYS_fcntl, source, F_SETFD, 0) : syscall(SYS_dup3, source, target, 0);
    if (result < 0) Fail(plan);
  }
  // Safe: the child has its own descriptor table.
  for (size_t i = 0; i < plan.passed_fd_count; ++i) syscall(SYS_fcntl, plan.passed_fds[i], F_SETFD, 0);
  for (int signal = 1; signal <= kSignals; ++signal) {
    const bool ignored = (plan.ignored >> (signal - 1) & 1) != 0;
    syscall(SYS_rt_sigaction, signal, ignored ? kIgnore : kDefaultAction, nullptr, kSignalSetSize);
  }
  // Lowering the limit can't fail, and descriptors above it stay open.
  if (plan.file_limit != nullptr) syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, plan.file_limit, nullptr);
  if (plan.cpu_mask_bytes > 0 && syscall(SYS_sched_setaffinity, 0, plan.cpu_mask_bytes, plan.cpu_mask) < 0) Fail(plan);
  // Unblock only after the handlers are reset: none of the launcher's may run here.
  const uint64_t none = 0;
  syscall(SYS_rt_sigprocmask, SIG_SETMASK, &none, nullptr, kSignalSetSize);
  char go = 0;
  long got;
  do {
    got = syscall(SYS_recvfrom, plan.gate, &go, 1, 0, nullptr, nullptr);
  } while (got < 0 && errno == EINTR);
  if (got != 1) syscall(SYS_exit_group, worker_contract::ExitCodeOfSignal(SIGKILL));
  syscall(SYS_execve, plan.program, plan.argv, plan.envp);
  Fail(plan);
}

// Blocks every signal of this thread during its lifetime.
class AllSignalsBlocked {
 public:
  AllSignalsBlocked() {
    const uint64_t all = ~uint64_t{0};
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &saved_, kSignalSetSize);
  }
  ~AllSignalsBlocked() { syscall(SYS_rt_sigprocmask, SIG_SETMASK, &saved_, nullptr, kSignalSetSize); }
  AllSignalsBlocked(const AllSignalsBlocked&) = delete;
  AllSignalsBlocked& operator=(const AllSignalsBlocked&) = delete;

 private:
  uint64_t saved_ = 0;
};

std::vector<char*> Pointers(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  pointers.reserve(strings.size() + 1);
  for (const std::string& s : strings) pointers.push_back(const_cast<char*>(s.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// Runs ChildMain in a copy of this process. Returns its pid, or -errno.
DDPRUN_NO_SANITIZE pid_t CloneChild(const ChildPlan& plan, int* pidfd) {
  const AllSignalsBlocked blocked;
  const long pid = syscall(SYS_clone, CLONE_PIDFD | SIGCHLD, nullptr, pidfd, nullptr, nullptr);
  if (pid == 0) ChildMain(plan);
  return pid < 0 ? -errno : static_cast<pid_t>(pid);
}

// Descriptors from 3 on that are not close-on-exec; nullopt if they can't be determined.
std::optional<std::vector<int>> InheritableDescriptors() {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc/self/fd"), closedir);
  if (folder == nullptr) return std::nullopt;
  std::vector<int> fds;
  while (const dirent* entry = readdir(folder.get())) {
    int fd = -1;
    if (!absl::SimpleAtoi(entry->d_name, &fd) || fd < 3) continue;
    const int flags = fcntl(fd, F_GETFD);
    if (flags >= 0 && (flags & FD_CLOEXEC) == 0) fds.push_back(fd);
  }
  return fds;
}

}  // namespace

absl::StatusOr<Child> CreateChild(const SpawnRequest& request) {
  if (request.argv.empty()) return absl::InvalidArgumentError("no program to run was given");
  const std::vector<char*> argv = Pointers(request.argv);
  const std::vector<char*> envp = Pointers(request.environment);
  DDPRUN_ASSIGN_OR_RETURN(StartGate::Ends gate, StartGate::Create());

  const std::optional<rlimit> file_limit = InheritedFileLimit();
  const std::vector<unsigned long> cpu_mask = CpuMask(request.cpus);
  ChildPlan plan{};
  plan.program = request.program.c_str();
  plan.argv = argv.data();
  plan.envp = envp.data();
  plan.gate = gate.process.get();
  plan.passed_fds = request.passed_fds.data();
  plan.passed_fd_count = request.passed_fds.size();
  plan.cpu_mask = cpu_mask.data();
  plan.cpu_mask_bytes = cpu_mask.size() * sizeof(unsigned long);
  plan.dies_with_parent = request.dies_with_parent;
  plan.parent = getpid();
  if (file_limit) plan.file_limit = &*file_limit;
  for (const int signal : request.ignored_signals) plan.ignored |= uint64_t{1} << (signal - 1);
  const int wanted[3] = {request.stdin_fd, request.stdout_fd, request.stderr_fd};
  UniqueFd moved[3];
  for (int target = 0; target < 3; ++target) {
    plan.fds[target] = wanted[target];
    // A descriptor of 0, 1 or 2 that is needed elsewhere would be overwritten before it is copied, so duplicate it
    // first.
    if (wanted[target] < 0 || wanted[target] > 2 || wanted[target] == target) continue;
    moved[target].reset(fcntl(wanted[target], F_DUPFD_CLOEXEC, 3));
    if (!moved[target].valid()) return ErrnoStatus(errno, "duplicating a standard stream");
    plan.fds[target] = moved[target].get();
  }
  std::optional<std::vector<int>> kept = InheritableDescriptors();
  if (kept) {
    kept->insert(kept->end(), request.passed_fds.begin(), request.passed_fds.end());
    kept->insert(kept->end(), plan.fds, plan.fds + 3);
    kept->push_back(plan.gate);
    std::sort(kept->begin(), kept->end());
    kept->erase(kept->begin(), std::lower_bound(kept->begin(), kept->end(), 3));
    kept->erase(std::unique(kept->begin(), kept->end()), kept->end());
    plan.kept_fds = kept->data();
    plan.kept_fd_count = kept->size();
  }

  int pidfd = -1;
  const pid_t pid = CloneChild(plan, &pidfd);
  if (pid < 0) {
    return absl::ResourceExhaustedError(absl::StrCat("can't start '", request.program, "': ", ProcessLimitText(-pid)));
  }
  Child child{pid, UniqueFd(pidfd), std::move(gate.launcher)};
  if (child.pidfd.valid()) return child;
  kill(pid, SIGKILL);
  while (waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  return absl::UnimplementedError("this kernel has no pidfd; Linux 5.4 or later is needed");
}

}  // namespace ddprun::launcher
