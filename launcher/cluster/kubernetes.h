#ifndef DDPRUN_LAUNCHER_CLUSTER_KUBERNETES_H_
#define DDPRUN_LAUNCHER_CLUSTER_KUBERNETES_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "launcher/config/cluster_environment.h"
#include "launcher/config/environment_lookup.h"

namespace ddprun::launcher {

// What an Indexed Job of Kubernetes, or one of a JobSet, says to its pods; nullopt where there is no
// JOB_COMPLETION_INDEX. `full_name`: this pod's, with its domain if it has one (getaddrinfo's canonical name of the
// host name); empty if not known, then HOSTNAME counts.
//   - A pod's name is that of the job, '-' and the index; the endpoint is the same with index 0, at port 29400. The
//     name appears late: with the pod, and in the domain of a headless service only. A pod that is in none (no
//     `subdomain`) can't be reached by its name: no endpoint, and a note that says so.
//   - The job id is the name without the index. Absent for a pod in the host's network, whose name is another.
//   - The number of nodes is nowhere: --nnodes (or PET_NNODES) has to say it.
// Kubeflow's operators say the rest in PET_ variables, which are flags already.
// InvalidArgument: one line that names the variable, its value and what is wrong.
absl::StatusOr<std::optional<ClusterEnvironment>> DetectKubernetes(const EnvironmentLookup& environment,
                                                                   const std::string& full_name);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CLUSTER_KUBERNETES_H_
