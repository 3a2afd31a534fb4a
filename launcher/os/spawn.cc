#include "launcher/os/spawn.h"

#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/os/cpu_topology.h"
#include "launcher/os/errno_status.h"
#include "launcher/os/resolve_program.h"
#include "rendezvous/base/file_limit.h"

// The child runs on memory that it shares with us: no instrumentation may look at its stack or keep books.
#define DDPRUN_NO_SANITIZE __attribute__((no_sanitize("address", "undefined", "thread")))

namespace ddprun::launcher {
namespace {

constexpr size_t kStackSize = 64 * 1024;
constexpr int kSignals = 64;
constexpr size_t kSignalSetSize = kSignals / 8;  // what the kernel calls sigsetsize

// Zero is SIG_DFL without flags in the kernel's struct sigaction, whose size differs between machines.
constexpr uint64_t kDefaultAction[8] = {};
// SIG_IGN: the handler comes first, but for architectures that LibTorch does not know.
constexpr uint64_t kIgnore[8] = {1};

// Everything the child needs, made before it exists: between clone and exec nothing is allocated, and only system
// calls are made, past the wrappers of libc.
struct ChildPlan {
  const char* program;
  char* const* argv;
  char* const* envp;
  int fds[3];
  const int* passed_fds;
  size_t passed_fd_count;
  uint64_t ignored;          // bit n-1 is signal n
  const rlimit* file_limit;  // null: as it is
  const unsigned long* cpu_mask;
  size_t cpu_mask_bytes;  // 0: as it is
  bool dies_with_parent;
  pid_t parent;
  int error;  // written by the child: errno of the step that failed
};

DDPRUN_NO_SANITIZE int ChildMain(void* argument) {
  ChildPlan* plan = static_cast<ChildPlan*>(argument);
  syscall(SYS_setsid);
  if (plan->dies_with_parent) {
    syscall(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    // The launcher may have died before the line above took effect.
    if (syscall(SYS_getppid) != plan->parent) syscall(SYS_exit_group, 128 + SIGKILL);
  }
  for (int target = 0; target < 3; ++target) {
    const int source = plan->fds[target];
    if (source < 0) continue;
    // dup3 refuses equal numbers, which only need to stay open.
    const long result =
        source == target ? syscall(SYS_fcntl, source, F_SETFD, 0) : syscall(SYS_dup3, source, target, 0);
    if (result < 0) {
      plan->error = errno;
      syscall(SYS_exit_group, 127);
    }
  }
  // The child's table of descriptors is its own.
  for (size_t i = 0; i < plan->passed_fd_count; ++i) syscall(SYS_fcntl, plan->passed_fds[i], F_SETFD, 0);
  for (int signal = 1; signal <= kSignals; ++signal) {
    const bool ignored = (plan->ignored >> (signal - 1) & 1) != 0;
    syscall(SYS_rt_sigaction, signal, ignored ? kIgnore : kDefaultAction, nullptr, kSignalSetSize);
  }
  // Lowering can't fail, and descriptors above the limit stay open.
  if (plan->file_limit != nullptr) syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, plan->file_limit, nullptr);
  if (plan->cpu_mask_bytes > 0 && syscall(SYS_sched_setaffinity, 0, plan->cpu_mask_bytes, plan->cpu_mask) < 0) {
    plan->error = errno;
    syscall(SYS_exit_group, 127);
  }
  // After the handlers: one of the launcher's must not run here.
  const uint64_t none = 0;
  syscall(SYS_rt_sigprocmask, SIG_SETMASK, &none, nullptr, kSignalSetSize);
  syscall(SYS_execve, plan->program, plan->argv, plan->envp);
  plan->error = errno;
  syscall(SYS_exit_group, 127);
  return 127;
}

// Blocks every signal of this thread while it lives.
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

// The stack of the child until it executes; ample for ChildMain.
class ChildStack {
 public:
  ChildStack()
      : base_(mmap(nullptr, kStackSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0)) {}
  ~ChildStack() {
    if (valid()) munmap(base_, kStackSize);
  }
  ChildStack(const ChildStack&) = delete;
  ChildStack& operator=(const ChildStack&) = delete;

  bool valid() const { return base_ != MAP_FAILED; }
  void* top() const { return static_cast<char*>(base_) + kStackSize; }

 private:
  void* const base_;
};

std::vector<char*> Pointers(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  pointers.reserve(strings.size() + 1);
  for (const std::string& s : strings) pointers.push_back(const_cast<char*>(s.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// Runs ChildMain in a new process that shares our memory, and returns when that process has executed or ended.
// Returns its pid, or -errno.
pid_t CloneChild(ChildPlan* plan, void* stack_top, int* pidfd) {
  const AllSignalsBlocked blocked;
  const pid_t pid = clone(ChildMain, stack_top, CLONE_VM | CLONE_VFORK | CLONE_PIDFD | SIGCHLD, plan, pidfd);
  return pid < 0 ? -errno : pid;
}

}  // namespace

absl::StatusOr<Child> Spawn(const SpawnRequest& request) {
  if (request.argv.empty()) return absl::InvalidArgumentError("no program to run was given");
  const std::vector<char*> argv = Pointers(request.argv);
  const std::vector<char*> envp = Pointers(request.environment);
  const ChildStack stack;
  if (!stack.valid()) return ExplainExecError(request.program, ENOMEM);

  const std::optional<rlimit> file_limit = InheritedFileLimit();
  const std::vector<unsigned long> cpu_mask = CpuMask(request.cpus);
  ChildPlan plan{request.program.c_str(),
                 argv.data(),
                 envp.data(),
                 {-1, -1, -1},
                 request.passed_fds.data(),
                 request.passed_fds.size(),
                 0,
                 nullptr,
                 cpu_mask.data(),
                 cpu_mask.size() * sizeof(unsigned long),
                 request.dies_with_parent,
                 getpid(),
                 0};
  if (file_limit) plan.file_limit = &*file_limit;
  for (const int signal : request.ignored_signals) plan.ignored |= uint64_t{1} << (signal - 1);
  const int wanted[3] = {request.stdin_fd, request.stdout_fd, request.stderr_fd};
  UniqueFd moved[3];
  for (int target = 0; target < 3; ++target) {
    plan.fds[target] = wanted[target];
    // One of 0, 1, 2 that is wanted elsewhere would be overwritten before it is copied: take it out of the way.
    if (wanted[target] < 0 || wanted[target] > 2 || wanted[target] == target) continue;
    moved[target].reset(fcntl(wanted[target], F_DUPFD_CLOEXEC, 3));
    if (!moved[target].valid()) return ErrnoStatus(errno, "duplicating a standard stream");
    plan.fds[target] = moved[target].get();
  }

  int pidfd = -1;
  const pid_t pid = CloneChild(&plan, stack.top(), &pidfd);
  if (pid < 0) return ExplainExecError(request.program, -pid);
  Child child{pid, UniqueFd(pidfd)};
  if (plan.error != 0 || !child.pidfd.valid()) {
    if (plan.error == 0) kill(pid, SIGKILL);
    siginfo_t info;
    while (waitid(P_PID, pid, &info, WEXITED) != 0 && errno == EINTR) {
    }
    if (plan.error == 0) return absl::UnimplementedError("this kernel has no pidfd; Linux 5.4 or later is needed");
    return ExplainExecError(request.program, plan.error);
  }
  return child;
}

}  // namespace ddprun::launcher
