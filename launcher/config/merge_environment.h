#ifndef DDPRUN_LAUNCHER_CONFIG_MERGE_ENVIRONMENT_H_
#define DDPRUN_LAUNCHER_CONFIG_MERGE_ENVIRONMENT_H_

#include "absl/status/statusor.h"
#include "launcher/config/cluster_environment.h"
#include "launcher/config/options.h"
#include "launcher/config/origins.h"

namespace ddprun::launcher {

// Puts what the cluster environment says into `options`, with its origin, where neither a flag nor a PET_ variable is
// given:
//   - the shape of the job: number of nodes, endpoint, and who hosts the server there (node 0; the others connect).
//     A given --nnodes=MIN:MAX is cut down to the nodes there are, unless an endpoint was given as well: then other
//     nodes may join from elsewhere. --standalone, or one node, needs no shape.
//   - the job's id, and the number of workers: one for each GPU, if there are any.
// Returns what else counts of the cluster environment (for Resolve), with notes about likely mistakes.
//
// InvalidArgument, one line that says what to do: the shape has to come from a cluster environment that is malformed
// (`found` is an error), that has an obstacle, or that knows of other nodes but not how many; it contradicts --nnodes;
// the endpoint is every node's own (localhost) in a job of several hosts; more workers were asked for than SLURM lets
// this task see GPUs.
absl::StatusOr<ClusterEnvironment> MergeEnvironment(absl::StatusOr<ClusterEnvironment> found, Options* options,
                                                    Origins* origins);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CONFIG_MERGE_ENVIRONMENT_H_
