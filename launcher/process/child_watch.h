#ifndef DDPRUN_LAUNCHER_PROCESS_CHILD_WATCH_H_
#define DDPRUN_LAUNCHER_PROCESS_CHILD_WATCH_H_

#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "launcher/io/event_loop.h"
#include "launcher/io/file_descriptor.h"
#include "launcher/process/spawn_process.h"
#include "worker_contract/exit_codes.h"

namespace ddprun::launcher {

// How a process ended. Thread-compatible value type.
struct ProcessEnd {
  enum class Kind { kExited, kSignaled };

  pid_t pid = -1;
  Kind kind = Kind::kExited;
  int code = 0;  // kExited: exit code, 0 to 255; kSignaled: signal number

  bool dumped = false;  // a core dump was written

  bool ok() const { return kind == Kind::kExited && code == 0; }

  // Exit status as in a shell: the exit code, or 128 + signal.
  int ExitCode() const { return kind == Kind::kExited ? code : worker_contract::ExitCodeOfSignal(code); }

  // "exited with code 7", "killed by SIGSEGV (11)".
  std::string Text() const;

  // Converts waitpid's status.
  static ProcessEnd FromWait(pid_t pid, int wait_status);
};

// Watches children by pidfd and reports their exits. Belongs to the loop's thread, and must be destroyed before the
// loop. When a child has exited, the rest of its process group is killed with SIGKILL before the child is reaped: until
// then its pid, which is also the group's id, can't be reused.
//
// A child that is ended by a signal of Signal may only be a wrapper, such as a shell whose script runs a program. Its
// own children in the group then get the signal as well, and its end is reported when they have exited, and so have
// those that they leave behind in turn. Each of them has become a child of this process, a subreaper; children of a
// living process are not signaled, so that a program that saves its state does not lose its helpers first. Processes
// that ignore the signal are not waited for.
class ChildWatch {
 public:
  // All exits seen in one iteration of the loop arrive in one call, in the order in which the kernel reported them, so
  // the first is the best candidate for the first cause. Not empty. The callback may watch and signal children, but not
  // destroy the ChildWatch.
  using Callback = std::function<void(std::vector<ProcessEnd>)>;

  // `loop` must outlive the result.
  static absl::StatusOr<std::unique_ptr<ChildWatch>> Create(EventLoop* loop, Callback callback);
  // Running children are neither killed nor reaped.
  ~ChildWatch();
  ChildWatch(const ChildWatch&) = delete;
  ChildWatch& operator=(const ChildWatch&) = delete;

  // Takes over `child`, a direct child of this process that leads its own process group.
  absl::Status Watch(Child child);

  // Signals one watched child (not with SIGKILL), or its whole process group. Returns false, and does nothing, if the
  // child is not watched because its exit has been reported. A child that has exited but was not reported yet may be
  // signaled. A stopped child does not handle SIGTERM until it receives SIGCONT.
  bool Signal(pid_t pid, int signal);
  bool SignalGroup(pid_t pid, int signal);

  // The watched children, in no particular order.
  std::vector<pid_t> pids() const;
  bool empty() const { return children_.empty(); }

 private:
  struct Watched {
    Child child;
    int signal = 0;                   // the last one that was to end it
    std::map<pid_t, UniqueFd> heirs;  // pidfds of the processes whose exits are waited for
  };

  ChildWatch(EventLoop* loop, UniqueFd ready, Callback callback);
  void OnReady();
  // REQUIRES: the child has exited. True if processes that it has left behind are still waited for.
  bool HasHeirs(Watched* watched);

  EventLoop* const loop_;
  // A nested epoll instance: it preserves the order in which the pidfds became readable.
  const UniqueFd ready_;
  const Callback callback_;
  std::unordered_map<pid_t, Watched> children_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROCESS_CHILD_WATCH_H_
