#include "launcher/process/orphan_sweeper.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>

#include "launcher/io/file_descriptor.h"
#include "launcher/process/proc_files.h"

namespace ddprun::launcher {
namespace {

// Limit for orphans to exit after SIGKILL.
constexpr absl::Duration kSweepTimeout = absl::Seconds(2);

std::vector<pid_t> Orphans(const std::vector<pid_t>& known) {
  std::vector<pid_t> orphans = ChildrenOfMainThread();
  const auto is_known = [&known](pid_t pid) { return std::find(known.begin(), known.end(), pid) != known.end(); };
  orphans.erase(std::remove_if(orphans.begin(), orphans.end(), is_known), orphans.end());
  return orphans;
}

// Reaps `pid` if it has exited.
bool Lives(pid_t pid) { return waitpid(pid, nullptr, WNOHANG) == 0; }

}  // namespace

absl::Status BecomeSubreaper() {
  if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0) return ErrnoStatus(errno, "PR_SET_CHILD_SUBREAPER");
  return absl::OkStatus();
}

std::vector<pid_t> KillOrphans(const std::vector<pid_t>& known, const std::set<pid_t>* only_sessions) {
  while (true) {
    std::vector<pid_t> orphans = Orphans(known);
    // Unreaped children: their pids can't have been reused.
    const auto is_left_alone = [&](pid_t pid) {
      const pid_t session = getsid(pid);
      const bool owned = std::find(known.begin(), known.end(), session) != known.end();
      return (owned || (only_sessions != nullptr && !only_sessions->contains(session))) && Lives(pid);
    };
    orphans.erase(std::remove_if(orphans.begin(), orphans.end(), is_left_alone), orphans.end());
    for (const pid_t pid : orphans) kill(pid, SIGKILL);
    size_t reaped = 0;
    for (const pid_t pid : orphans) reaped += waitpid(pid, nullptr, WNOHANG) != 0;
    // Children of the reaped processes have become ours.
    if (reaped == 0) return orphans;
  }
}

void OrphanSweep::Begin(SteadyTime now) { deadline_ = now + kSweepTimeout; }

size_t OrphanSweep::Continue(const std::vector<pid_t>& known, const std::vector<pid_t>& workers, SteadyTime now) {
  worker_sessions_.insert(workers.begin(), workers.end());
  std::vector<pid_t> left = KillOrphans(known, only_worker_sessions_ ? &worker_sessions_ : nullptr);
  std::erase_if(left, [&](pid_t pid) { return std::find(stuck_.begin(), stuck_.end(), pid) != stuck_.end(); });
  if (!left.empty() && now < deadline_) return 0;
  deadline_ = SteadyTime::InfiniteFuture();
  stuck_.insert(stuck_.end(), left.begin(), left.end());
  return left.size();
}

void ReapDeadOrphans(const std::vector<pid_t>& known) {
  for (const pid_t pid : Orphans(known)) waitpid(pid, nullptr, WNOHANG);
}

}  // namespace ddprun::launcher
