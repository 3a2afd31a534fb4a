#ifndef DDPRUN_LAUNCHER_CLUSTER_DETECT_H_
#define DDPRUN_LAUNCHER_CLUSTER_DETECT_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "launcher/config/cluster_environment.h"
#include "launcher/config/environment_lookup.h"
#include "launcher/config/port_range.h"

namespace ddprun::launcher {

// Finds out what started this launcher: SLURM, else Kubernetes, else an MPI launcher; Starter::kNone if it was none of
// them. `ports` limits the port that is derived for the server; `full_name` is this host's (kubernetes.h). In a SLURM
// job, SLURM counts: srun sets MPI's variables as well. An mpirun there is an obstacle: it makes a step of its own
// that leaves nodes out. InvalidArgument: one line that names the variable, its value, what is wrong and what to do.
absl::StatusOr<ClusterEnvironment> DetectCluster(const EnvironmentLookup& environment,
                                                 const std::optional<PortRange>& ports, const std::string& full_name);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CLUSTER_DETECT_H_
