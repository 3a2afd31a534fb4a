#ifndef DDPRUN_LAUNCHER_CLUSTER_PROBE_H_
#define DDPRUN_LAUNCHER_CLUSTER_PROBE_H_

#include <optional>

#include "absl/status/statusor.h"
#include "launcher/config/cluster_environment.h"
#include "launcher/config/flag_value.h"

namespace ddprun::launcher {

// Detects the environment that started this process: reads environment variables, the files that they name,
// slurm.conf and, in a Kubernetes pod, the host's full name (which may query a name server). `ports` restricts the port
// of a derived endpoint.
// InvalidArgument: as DetectCluster (cluster/detect.h).
absl::StatusOr<ClusterEnvironment> ProbeCluster(const EnvironmentLookup& environment,
                                                const std::optional<PortRange>& ports);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CLUSTER_PROBE_H_
