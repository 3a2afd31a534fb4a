#ifndef DDPRUN_LAUNCHER_CLUSTER_ENVIRONMENT_PROBE_H_
#define DDPRUN_LAUNCHER_CLUSTER_ENVIRONMENT_PROBE_H_

#include <optional>

#include "absl/status/statusor.h"
#include "launcher/core/cluster_environment.h"
#include "launcher/core/environment_lookup.h"
#include "launcher/core/port_range.h"

namespace ddprun::launcher {

// Looks at what started this process: its environment, SLURM's slurm.conf, in a pod of Kubernetes the host's full name
// (which may ask a name server). `ports` limits the port of an endpoint that is derived. InvalidArgument: as
// DetectCluster (cluster/detect.h).
absl::StatusOr<ClusterEnvironment> ProbeCluster(const EnvironmentLookup& environment,
                                                const std::optional<PortRange>& ports);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CLUSTER_ENVIRONMENT_PROBE_H_
