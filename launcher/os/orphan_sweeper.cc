#include "launcher/os/orphan_sweeper.h"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <csignal>

#include "launcher/os/errno_status.h"
#include "launcher/os/pidfd.h"
#include "launcher/os/proc_files.h"
#include "launcher/os/unique_fd.h"
#include "rendezvous/base/steady_time.h"

namespace ddprun::launcher {
namespace {

std::vector<pid_t> Orphans(const std::vector<pid_t>& known) {
  std::vector<pid_t> orphans = ChildrenOfMainThread();
  const auto is_known = [&known](pid_t pid) { return std::find(known.begin(), known.end(), pid) != known.end(); };
  orphans.erase(std::remove_if(orphans.begin(), orphans.end(), is_known), orphans.end());
  return orphans;
}

// Waits for the end of a child of ours until `deadline` and reaps it; false if it still runs.
bool ReapUntil(pid_t pid, SteadyTime deadline) {
  const UniqueFd pidfd = OpenPidfd(pid);
  const absl::Duration left = std::max(deadline - SteadyNow(), absl::ZeroDuration());
  pollfd waited{pidfd.get(), POLLIN, 0};
  while (pidfd.valid() && poll(&waited, 1, absl::ToInt64Milliseconds(absl::Ceil(left, absl::Milliseconds(1)))) < 0 &&
         errno == EINTR) {
  }
  return waitpid(pid, nullptr, WNOHANG) != 0;  // an error means that it is no child of ours any more
}

}  // namespace

absl::Status BecomeSubreaper() {
  if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0) return ErrnoStatus(errno, "PR_SET_CHILD_SUBREAPER");
  return absl::OkStatus();
}

int SweepOrphans(const std::vector<pid_t>& known, absl::Duration limit) {
  const SteadyTime deadline = SteadyNow() + limit;
  while (true) {
    const std::vector<pid_t> orphans = Orphans(known);
    if (orphans.empty()) return 0;
    // Unreaped children: none of these numbers can mean somebody else.
    for (const pid_t pid : orphans) kill(pid, SIGKILL);
    for (const pid_t pid : orphans) ReapUntil(pid, deadline);
    if (SteadyNow() >= deadline) return static_cast<int>(Orphans(known).size());
  }
}

void ReapDeadOrphans(const std::vector<pid_t>& known) {
  for (const pid_t pid : Orphans(known)) waitpid(pid, nullptr, WNOHANG);
}

}  // namespace ddprun::launcher
