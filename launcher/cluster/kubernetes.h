#ifndef DDPRUN_LAUNCHER_CLUSTER_KUBERNETES_H_
#define DDPRUN_LAUNCHER_CLUSTER_KUBERNETES_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "launcher/config/cluster_environment.h"

namespace ddprun::launcher {

// Reads the variables that Kubernetes sets in pods of an Indexed Job, or of a Job in a JobSet; nullopt without
// JOB_COMPLETION_INDEX. `full_name`: this pod's name, with its domain if it has one (getaddrinfo's canonical name of
// the host name); if empty, HOSTNAME is used.
//   - A pod's name is the job's name, '-' and the index; the endpoint is the same name with index 0, at port 29400. It
//     becomes resolvable late, with the pod, and only in the domain of a headless service. A pod outside of such a
//     domain (no `subdomain`) can't be reached by its name: the endpoint is absent, and a note says why.
//   - The job id is the name without the index. Absent for a pod in the host's network, whose name is different.
//   - The number of nodes is not available: --nnodes (or PET_NNODES) must be given.
// Kubeflow's operators set the rest in PET_ variables, which are flags already.
// InvalidArgument: one line with the variable, its value and what is wrong.
absl::StatusOr<std::optional<ClusterEnvironment>> DetectKubernetes(const EnvironmentLookup& environment,
                                                                   const std::string& full_name);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CLUSTER_KUBERNETES_H_
