#ifndef DDPRUN_LAUNCHER_CLUSTER_SLURM_H_
#define DDPRUN_LAUNCHER_CLUSTER_SLURM_H_

#include <optional>

#include "absl/status/statusor.h"
#include "launcher/config/cluster_environment.h"
#include "launcher/config/environment_lookup.h"
#include "launcher/config/port_range.h"

namespace ddprun::launcher {

// What SLURM's variables say; nullopt where there is no SLURM_JOB_ID. Rules:
//   - In a step (srun): its nodes are those of SLURM_STEP_NODELIST, in that order, and this node's index is the place
//     of SLURMD_NODENAME in it. SLURM_NODEID is the same but for heterogeneous steps, which count their components one
//     after the other and sort the list. It is asked where the name is missing.
//   - The endpoint is the first node and DerivedPort of job, step and restart, within `ports`; its address from
//     SLURM_NODE_ALIASES, if that knows one. Absent for one node, which needs none.
//   - The job id is SLURM_JOB_ID, with ".STEP" for steps after the first.
//   - topology: the switches of SLURM_TOPOLOGY_ADDR, then the node's index.
//   - Without a step (a batch script, salloc's shell on a node): the job has the shape, if it has one node. Steps with
//     numbers that SLURM keeps for itself are none. Nor are variables of another step, which sbatch and salloc pass on
//     when they are called in one: they have a node count that is not SLURM_NNODES, or do not name this node. (srun's
//     --preserve-env keeps SLURM_NNODES from the job: a smaller step is taken for none then, and the flags are needed.)
//   - On a machine that is no node of the job (salloc's shell on a login node): no shape at all.
//   - obstacle: several tasks on a node; several nodes or components, but no step.
// InvalidArgument: one line that names the variable, its value, what is wrong and what to do.
absl::StatusOr<std::optional<ClusterEnvironment>> DetectSlurm(const EnvironmentLookup& environment,
                                                              const std::optional<PortRange>& ports);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CLUSTER_SLURM_H_
