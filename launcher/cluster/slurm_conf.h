#ifndef DDPRUN_LAUNCHER_CLUSTER_SLURM_CONF_H_
#define DDPRUN_LAUNCHER_CLUSTER_SLURM_CONF_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "launcher/config/cluster_environment.h"
#include "launcher/config/environment_lookup.h"

namespace ddprun::launcher {

// What a launcher has to know of slurm.conf.
struct SlurmConf {
  absl::Duration kill_wait = absl::Seconds(30);  // KillWait: from SIGTERM to SIGKILL
  // Only with ProctrackType=proctrack/linuxproc. With proctrack/cgroup, the default, signals other than SIGKILL go to
  // the task itself, with proctrack/pgid to its process group. To pass one on that the workers have got already does
  // less harm than to take it for delivered.
  bool signals_every_process = false;
};

// Reads the text of a slurm.conf: KEY=VALUE, several on a line, keys in any case, "#" begins a comment, "\" at its end
// continues a line. As in SLURM the last of equal keys counts. Whatever can't be read is passed over, and so is what
// lies in files that it includes: the defaults are better than no launcher.
SlurmConf ParseSlurmConf(absl::string_view text);

// Where slurm.conf may lie, the likeliest first: only $SLURM_CONF if it is set, as for SLURM itself.
std::vector<std::string> SlurmConfPlaces(const EnvironmentLookup& environment);

// Puts it into what DetectSlurm found.
void MergeSlurmConf(const SlurmConf& conf, BatchSystem& batch);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CLUSTER_SLURM_CONF_H_
