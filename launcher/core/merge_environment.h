#ifndef DDPRUN_LAUNCHER_CORE_MERGE_ENVIRONMENT_H_
#define DDPRUN_LAUNCHER_CORE_MERGE_ENVIRONMENT_H_

#include "absl/status/statusor.h"
#include "launcher/core/cluster_environment.h"
#include "launcher/core/options.h"
#include "launcher/core/origins.h"

namespace ddprun::launcher {

// Puts what the cluster environment say into `options`, with its origin, where neither a flag nor a PET_ variable spoke:
//   - the shape of the job: number of nodes, endpoint, and who hosts the server there (node 0; the others connect).
//     A --nnodes=MIN:MAX that was given is cut down to the nodes there are, unless an endpoint was given as well:
//     then other nodes may come from elsewhere. --standalone, or one node, needs no shape.
//   - the job's id, and the number of workers: one for each GPU, if there are any.
// Returns what of the cluster environment counts beside the options (for Resolve), with notes about what may not be meant.
//
// InvalidArgument, one line that says what to do: the shape would have to be taken from a cluster environment that are
// malformed (`found` is an error) or have an obstacle, or know of other nodes, but not how many; they contradict
// --nnodes; an endpoint that is every node's own (localhost) in a job of several hosts; more workers asked for than
// SLURM lets this task see GPUs.
absl::StatusOr<ClusterEnvironment> MergeEnvironment(absl::StatusOr<ClusterEnvironment> found, Options* options,
                                                    Origins* origins);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CORE_MERGE_ENVIRONMENT_H_
