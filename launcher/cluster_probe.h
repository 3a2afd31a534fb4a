#ifndef DDPRUN_LAUNCHER_CLUSTER_ENVIRONMENT_PROBE_H_
#define DDPRUN_LAUNCHER_CLUSTER_ENVIRONMENT_PROBE_H_

#include <optional>

#include "absl/status/statusor.h"
#include "launcher/core/cluster_environment.h"
#include "launcher/core/environment_lookup.h"
#include "launcher/core/port_range.h"

namespace ddprun::launcher {

// Detects the environment that started this process: reads environment variables, slurm.conf and, in a Kubernetes pod,
// the host's full name (which may query a name server). `ports` restricts the port of a derived endpoint.
// InvalidArgument: as DetectCluster (cluster/detect.h).
absl::StatusOr<ClusterEnvironment> ProbeCluster(const EnvironmentLookup& environment,
                                                const std::optional<PortRange>& ports);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CLUSTER_ENVIRONMENT_PROBE_H_
