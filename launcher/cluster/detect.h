#ifndef DDPRUN_LAUNCHER_CLUSTER_DETECT_H_
#define DDPRUN_LAUNCHER_CLUSTER_DETECT_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "launcher/config/cluster_environment.h"
#include "launcher/config/flag_value.h"

namespace ddprun::launcher {

// Detects what started this launcher: SLURM, else Kubernetes, else Open MPI's mpirun, else a platform (platforms.h),
// else another MPI launcher, else PBS, LSF or Grid Engine; Starter::kNone if none of them. `ports` restricts the port
// derived for the server; `full_name` is this host's (kubernetes.h). In a SLURM job, SLURM takes precedence, because
// srun sets MPI's variables as well. mpirun in a SLURM job is an obstacle: it creates its own step that omits nodes.
// In a job of PBS, LSF or Grid Engine, pbsdsh, blaunch or an MPI launcher that started a process on each host gives the
// nodes, and the batch system the endpoint; the launcher on that host hosts the server, whatever its index.
// InvalidArgument: one line with the variable, its value, what is wrong and what to do.
absl::StatusOr<ClusterEnvironment> DetectCluster(const EnvironmentLookup& environment,
                                                 const std::optional<PortRange>& ports, const std::string& full_name,
                                                 const FileLookup& read_file);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CLUSTER_DETECT_H_
