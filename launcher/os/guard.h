#ifndef DDPRUN_LAUNCHER_OS_GUARD_H_
#define DDPRUN_LAUNCHER_OS_GUARD_H_

#include <sys/types.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "launcher/os/event_loop.h"
#include "launcher/os/unique_fd.h"
#include "rendezvous/base/steady_time.h"

namespace ddprun::launcher {

// The guard knows the processes of its launcher by the environment variable DDPRUN_LAUNCHER_ID
// (worker_contract/environment.h): every worker must be started with it. Its value is a list of launcher ids with ':'
// between them, the outermost launcher first, so that the guard of an outer launcher also finds what an inner one has
// started.

// The variable's value for workers of launcher `own_id`, whose own environment has the value `inherited` (empty if
// it has none).
std::string LauncherIdForWorkers(absl::string_view inherited, absl::string_view own_id);

// Whether the list `value` names launcher `id`.
bool NamesLauncher(absl::string_view value, absl::string_view id);

// Sees to it that nothing outlives a launcher that was killed with SIGKILL, not even grandchildren that made a
// session of their own (direct workers die by PR_SET_PDEATHSIG without it): a tiny process, asleep on a socket
// whose other end only the launcher holds. When that closes without a goodbye, it kills every process of the same
// user that names the launcher's id in its environment, until none is left, and exits. And to it that workers do not
// run on under a launcher that hangs (SIGSTOP, a debugger): it does the same when the time is over that it was told.
//
// A process that changed its environment before it was started, or that has overwritten it (setproctitle), is not
// found this way.
//
// The guard has its own session, ignores the signals by which sessions are ended, holds none of the launcher's
// files, and wakes up only when it is told something. If it is killed, or stopped for so long that it can't be told
// any more, another one takes its place (see Watch).
//
// Belongs to the main thread.
class Guard {
 public:
  // Forks the guard for launcher `id` (a fresh one, see RandomId). Call before any thread exists and before gRPC
  // is touched. ResourceExhausted when there are no more processes or descriptors.
  static absl::StatusOr<Guard> Start(const std::string& id);

  // A guard that takes another's place is this very program, executed once more: a process with threads can't fork.
  // To be called first of all in main; does not return if this process is to be a guard.
  static void RunIfAsked(int argc, char** argv);

  Guard(Guard&&) = default;
  Guard& operator=(Guard&&) = delete;
  // As Dismiss.
  ~Guard();

  // The guard's process, a child of this one: keep it out of SweepOrphans.
  pid_t pid() const { return pid_; }

  // All workers are to be killed at that time, unless another one is told before; infinite: never. Does not block.
  void KillWorkersAt(SteadyTime time);

  // From now on, when the guard dies, starts another one on the loop's thread, tells it the same time and logs a
  // warning. Gives up, with an error in the log, after kMaxReplacements. REQUIRES: Unwatch is called before the loop
  // goes, and this object is not moved until then.
  absl::Status Watch(EventLoop* loop);
  void Unwatch();
  static constexpr int kMaxReplacements = 16;

  // Tells the guard that all is well, and reaps it; a guard that does not end within a second is killed. For the end,
  // after all workers are gone.
  void Dismiss();

 private:
  Guard(std::string id, pid_t pid, UniqueFd process, UniqueFd socket);
  void OnDeath();
  // Starts another process in place of a dead one.
  absl::Status Replace();

  std::string id_;
  pid_t pid_;
  UniqueFd process_;  // pidfd; not valid if the kernel gave none
  UniqueFd socket_;   // not valid: there is no guard
  SteadyTime kill_time_ = SteadyTime::InfiniteFuture();
  EventLoop* loop_ = nullptr;
  int replacements_ = 0;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_OS_GUARD_H_
