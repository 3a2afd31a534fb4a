#ifndef DDPRUN_LAUNCHER_CLUSTER_SLURM_TEXT_H_
#define DDPRUN_LAUNCHER_CLUSTER_SLURM_TEXT_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "launcher/config/cluster_environment.h"

// SLURM's texts: slurm.conf, and the output of squeue.
namespace ddprun::launcher {

// Returns the time limit of job `job`, as an absolute time, from the output of `squeue -h -o "%A %e %l"` ("1234
// 2026-11-21T17:43:10 2:00:00", in local time `zone`). Absent if the job is not listed or unlimited ("1234 NONE
// UNLIMITED"; an unlimited running job shows an end a year from now).
std::optional<absl::Time> ReadEndTime(absl::string_view squeue, absl::string_view job, absl::TimeZone zone);

// Settings of slurm.conf that a launcher needs.
struct SlurmConf {
  absl::Duration kill_wait = absl::Seconds(30);  // KillWait: time between SIGTERM and SIGKILL
  // True only with ProctrackType=proctrack/linuxproc. Signals other than SIGKILL go to the task itself with
  // proctrack/cgroup, the default, and to its process group with proctrack/pgid. Forwarding a signal that the workers
  // already received does less harm than not delivering it.
  bool signals_every_process = false;
};

// Parses the text of a slurm.conf: KEY=VALUE, several per line, case-insensitive keys, "#" starts a comment, "\" at the
// end of a line continues it. As in SLURM the last of equal keys counts. Unreadable parts and included files are
// skipped: a launcher with defaults is better than none.
SlurmConf ParseSlurmConf(absl::string_view text);

// Returns the candidate paths of slurm.conf, the most likely first: only $SLURM_CONF if it is set, as in SLURM itself.
std::vector<std::string> SlurmConfPaths(const EnvironmentLookup& environment);

// Merges `conf` into the result of DetectSlurm.
void MergeSlurmConf(const SlurmConf& conf, BatchSystem& batch);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CLUSTER_SLURM_TEXT_H_
