#ifndef DDPRUN_LAUNCHER_OS_ORPHAN_SWEEPER_H_
#define DDPRUN_LAUNCHER_OS_ORPHAN_SWEEPER_H_

#include <sys/types.h>

#include <vector>

#include "absl/status/status.h"

namespace ddprun::launcher {

// What workers leave behind outside their process groups: children that made a session of their own, or were
// orphaned by a parent that has died. A "child subreaper" becomes the parent of such orphans, so they can be found
// among our own children. All functions are to be called from the main thread, which must also be the one that
// spawns: it is the thread to which orphans are given.

// Makes this process the one that orphans below it are given to. Call before the first worker is started.
absl::Status BecomeSubreaper();

// Kills (SIGKILL) every child of this process that is not in `known` (workers that run, the guard), reaps those that
// are dead, and does the same with what turns into an orphan by that. Does not wait: returns those that are left, which
// have not died yet. Call it again at each SIGCHLD until there are none, or for as long as one is patient: a process
// may be stuck in the kernel, or may not be killed by us. Costs one small read when there are none.
// REQUIRES: nobody else waits for children that are not in `known`.
std::vector<pid_t> KillOrphans(const std::vector<pid_t>& known);

// Reaps those orphans that have ended by themselves, and touches no others: a subreaper that never does this
// collects zombies while workers start daemons. For each SIGCHLD, if that is listened to.
void ReapDeadOrphans(const std::vector<pid_t>& known);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_OS_ORPHAN_SWEEPER_H_
