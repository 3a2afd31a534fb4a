#ifndef DDPRUN_LAUNCHER_PROCESS_ORPHAN_SWEEPER_H_
#define DDPRUN_LAUNCHER_PROCESS_ORPHAN_SWEEPER_H_

#include <sys/types.h>

#include <set>
#include <vector>

#include "absl/status/status.h"
#include "base/steady_time.h"

namespace ddprun::launcher {

// Finds processes that workers leave behind outside their process groups: children in their own sessions, or orphaned
// by a parent that exited. A "child subreaper" becomes the parent of such orphans, so they appear among our own
// children. Call all functions from the main thread, which must also be the spawning thread: orphans are reparented to
// it.

// Makes this process the subreaper of its descendants. Call before the first worker is started.
absl::Status BecomeSubreaper();

// Kills (SIGKILL) every child of this process that is not in `known` (running workers, the guard), reaps dead ones, and
// repeats that for processes that become orphans. Does not wait: returns those that have not exited yet. Call it again
// at each SIGCHLD until it returns none, with a time limit: a process may be stuck in the kernel, or may not be
// killable by us. Costs one small read if there are none.
// An orphan in the session of a known process is left alone: a worker that outlives its round started it. With
// `only_sessions`, orphans outside these sessions are left alone: daemons and processes started with setsid. REQUIRES:
// no other code waits for children that are not in `known`.
std::vector<pid_t> KillOrphans(const std::vector<pid_t>& known, const std::set<pid_t>* only_sessions = nullptr);

// Kills orphans between rounds with a time limit, without blocking the loop.
class OrphanSweep {
 public:
  // `only_worker_sessions`: see `only_sessions` of KillOrphans; these are the sessions that workers lead.
  explicit OrphanSweep(bool only_worker_sessions) : only_worker_sessions_(only_worker_sessions) {}

  // Starts a sweep. Call Continue then, at each SIGCHLD and at the deadline.
  void Begin(SteadyTime now);
  bool running() const { return deadline_ != SteadyTime::InfiniteFuture(); }
  SteadyTime deadline() const { return deadline_; }  // infinite: no sweep in progress

  // Kills orphans: all children but the `known` ones; `workers` are the round's workers. The sweep is over when all
  // have exited, or at the deadline: returns the number of those that survived, for a message, else 0. Later sweeps do
  // not wait for these.
  size_t Continue(const std::vector<pid_t>& known, const std::vector<pid_t>& workers, SteadyTime now);

 private:
  const bool only_worker_sessions_;
  std::set<pid_t> worker_sessions_;
  std::vector<pid_t> stuck_;  // survived an earlier sweep
  SteadyTime deadline_ = SteadyTime::InfiniteFuture();
};

// Reaps orphans that have exited, and leaves others alone. Without it a subreaper accumulates zombies if workers start
// daemons. Call it at each SIGCHLD.
void ReapDeadOrphans(const std::vector<pid_t>& known);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROCESS_ORPHAN_SWEEPER_H_
