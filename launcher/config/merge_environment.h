#ifndef DDPRUN_LAUNCHER_CONFIG_MERGE_ENVIRONMENT_H_
#define DDPRUN_LAUNCHER_CONFIG_MERGE_ENVIRONMENT_H_

#include "absl/status/statusor.h"
#include "launcher/config/cluster_environment.h"
#include "launcher/config/options.h"
#include "launcher/config/origins.h"

namespace ddprun::launcher {

// Copies values of the cluster environment, with their origins, into `options` where neither a flag nor a PET_ variable
// is given:
//   - the shape of the job: the number of nodes, the endpoint, and which node hosts the server there (node 0; the
//     others connect). A given --nnodes=MIN:MAX is reduced to the number of nodes present, unless an endpoint is given
//     as well: then other nodes may join from elsewhere. --standalone, or one node, needs no shape.
//   - the job id, and the number of workers: one per GPU, if there are any.
// Returns the rest of the cluster environment (for Resolve), with notes about likely mistakes, such as a job of one
// node where the environment tells of several.
//
// InvalidArgument, one line that says what to do:
//   - the shape must come from a cluster environment that is malformed (`found` is an error), has an obstacle, or knows
//     of other nodes but not their number
//   - the cluster environment contradicts --nnodes
//   - the endpoint is localhost in a job of several hosts
//   - more workers are requested than SLURM lets this task see GPUs
absl::StatusOr<ClusterEnvironment> MergeEnvironment(absl::StatusOr<ClusterEnvironment> found, Options* options,
                                                    Origins* origins);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CONFIG_MERGE_ENVIRONMENT_H_
