#ifndef DDPRUN_LAUNCHER_CLUSTER_PLATFORMS_H_
#define DDPRUN_LAUNCHER_CLUSTER_PLATFORMS_H_

#include <optional>

#include "absl/status/statusor.h"
#include "launcher/config/cluster_environment.h"
#include "launcher/config/flag_value.h"

namespace ddprun::launcher {

// Reads the variables of a platform that starts one command on each node of a job; nullopt without them. Supported are
// SkyPilot, dstack, Flux, Amazon SageMaker, Azure Machine Learning, Vertex AI, Ray Train, and pods that have torch's
// variables for each pod (Kubeflow's PyTorchJob without PET_ variables, Volcano, Alibaba's PAI).
//   - The endpoint is the address of node 0, at the port that the platform names for it, else at DerivedPort of the
//     job, within `ports`. Absent for one node, which needs none.
//   - obstacle: several processes on a node.
// InvalidArgument: one line with the variable, its value, what is wrong and what to unset to ignore the platform.
absl::StatusOr<std::optional<ClusterEnvironment>> DetectPlatform(const EnvironmentLookup& environment,
                                                                 const std::optional<PortRange>& ports);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CLUSTER_PLATFORMS_H_
