#ifndef DDPRUN_LAUNCHER_CLUSTER_DETECT_H_
#define DDPRUN_LAUNCHER_CLUSTER_DETECT_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "launcher/config/cluster_environment.h"
#include "launcher/config/environment_lookup.h"
#include "launcher/config/port_range.h"

namespace ddprun::launcher {

// Detects what started this launcher: SLURM, else Kubernetes, else an MPI launcher; Starter::kNone if none of them.
// `ports` restricts the port derived for the server; `full_name` is this host's (kubernetes.h). In a SLURM job, SLURM
// takes precedence, because srun sets MPI's variables as well. mpirun in a SLURM job is an obstacle: it creates its own
// step that omits nodes. InvalidArgument: one line with the variable, its value, what is wrong and what to do.
absl::StatusOr<ClusterEnvironment> DetectCluster(const EnvironmentLookup& environment,
                                                 const std::optional<PortRange>& ports, const std::string& full_name);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CLUSTER_DETECT_H_
