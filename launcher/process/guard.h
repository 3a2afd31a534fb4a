#ifndef DDPRUN_LAUNCHER_PROCESS_GUARD_H_
#define DDPRUN_LAUNCHER_PROCESS_GUARD_H_

#include <sys/types.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/steady_time.h"
#include "launcher/io/event_loop.h"
#include "launcher/io/file_descriptor.h"

namespace ddprun::launcher {

// The guard recognizes the processes of its launcher by two marks that their descendants inherit:
// - a soft limit of RLIMIT_RTTIME that is unique to the launcher (MarkProcess). A process keeps it whatever its
//   environment, session and parent are. Nothing else is inherited for sure and needs no privilege: a dead launcher's
//   orphans have the parent that any orphan has. The limit applies to the CPU time of real-time processes, and is too
//   large to have an effect.
// - the environment variable DDPRUN_LAUNCHER_ID (worker_contract/environment.h), where the limit can't be set, or was
//   replaced. Its value is a list of launcher ids separated by ':', the outermost launcher first, so that the guard of
//   an outer launcher also finds the processes of an inner one.

// Marks a process that has not started anything yet as one of launcher `id`, and so its descendants. No effect if the
// user limits RLIMIT_RTTIME.
void MarkProcess(pid_t pid, const std::string& id);

// Value of the variable for workers of launcher `own_id`, whose own environment has the value `inherited` (empty if
// unset).
std::string LauncherIdForWorkers(absl::string_view inherited, absl::string_view own_id);

// True if the list `value` contains launcher `id`.
bool NamesLauncher(absl::string_view value, absl::string_view id);

// A small helper process that kills everything that a launcher started if the launcher is killed with SIGKILL,
// including grandchildren in their own sessions (direct workers are killed by PR_SET_PDEATHSIG anyway). It sleeps on a
// socket whose other end only the launcher holds. If that end closes without a Dismiss, the guard kills every process
// of the same user with a mark of the launcher, until none is left, removes the launcher's ErrorFolder, and exits.
// Guards of inner launchers are left to do the same.
//
// When the launcher hangs (SIGSTOP, a debugger) beyond the given deadline, the guard kills the same processes and all
// descendants of the launcher, whether or not they have called exec yet, and keeps searching until the launcher sends
// another deadline. Children in the launcher's own session, which existed before the launcher was executed, are left
// alone.
//
// The guard has its own session, ignores the signals that end sessions, holds none of the launcher's files, and wakes
// up only for messages. If it is killed, or is stopped long enough that messages can't be delivered, it is replaced
// (see Watch).
//
// Belongs to the main thread.
class Guard {
 public:
  // Forks the guard for launcher `id` (unique, see RandomId). Call before any thread exists and before gRPC is used.
  // ResourceExhausted if no process or descriptor is left.
  static absl::StatusOr<Guard> Start(const std::string& id);

  // A replacement guard is this program, executed again, because a process with threads can't fork. Call it first in
  // main; it does not return if this process is a guard.
  static void RunIfAsked(int argc, char** argv);

  Guard(Guard&&) = default;
  Guard& operator=(Guard&&) = delete;
  // Calls Dismiss.
  ~Guard();

  // Pid of the guard, a child of this process: exclude it from KillOrphans.
  pid_t pid() const { return pid_; }

  // Sets the time at which the guard kills all workers unless it is changed before; infinite: never. Does not block.
  void KillWorkersAt(SteadyTime time);

  // From now on, if the guard dies, starts a replacement on the loop's thread with the same deadline, and logs a
  // warning. Gives up, and logs an error, after kMaxReplacements. REQUIRES: Unwatch is called before the loop is
  // destroyed, and this object is not moved until then.
  absl::Status Watch(EventLoop* loop);
  void Unwatch();
  static constexpr int kMaxReplacements = 16;

  // Tells the guard to exit, and reaps it; kills it if it does not exit within a second. Call at the end, after all
  // workers have exited.
  void Dismiss();

 private:
  Guard(std::string id, pid_t pid, UniqueFd process, UniqueFd socket);
  void OnDeath();
  // Replaces a dead guard process.
  absl::Status Replace();

  std::string id_;
  pid_t pid_;
  UniqueFd process_;  // pidfd
  UniqueFd socket_;   // not valid: no guard is running
  SteadyTime kill_time_ = SteadyTime::InfiniteFuture();
  EventLoop* loop_ = nullptr;
  int replacements_ = 0;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROCESS_GUARD_H_
