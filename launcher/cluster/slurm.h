#ifndef DDPRUN_LAUNCHER_CLUSTER_SLURM_H_
#define DDPRUN_LAUNCHER_CLUSTER_SLURM_H_

#include <optional>

#include "absl/status/statusor.h"
#include "launcher/config/cluster_environment.h"
#include "launcher/config/flag_value.h"

namespace ddprun::launcher {

// Reads SLURM's variables; nullopt without SLURM_JOB_ID. Rules:
//   - In a step (srun): the nodes are those of SLURM_STEP_NODELIST, in that order, and this node's index is the
//     position of SLURMD_NODENAME in it. SLURM_NODEID is equal except in heterogeneous steps, which number their
//     components one after the other and sort the list. It is used if the name is missing.
//   - The endpoint is the first node and DerivedPort of job, step and restart, within `ports`; its address is taken
//     from SLURM_NODE_ALIASES if listed there. Absent for one node, which needs none.
//   - The job id is SLURM_JOB_ID, with ".STEP" for steps after the first.
//   - topology: the switches of SLURM_TOPOLOGY_ADDR, then the node's index.
//   - Without a step (a batch script, salloc's shell on a node): the job's nodes, if it has one node. Steps with
//     numbers that SLURM reserves do not count. Neither do variables of another step, which sbatch and salloc pass on
//     when called in one: their node count differs from SLURM_NNODES, or they do not include this node. (With
//     --preserve-env srun keeps the job's SLURM_NNODES: then a smaller step does not count, and the flags are needed.)
//   - On a machine that is not a node of the job (salloc's shell on a login node): no nodes at all.
//   - obstacle: several tasks on a node; several nodes or components, but no step.
// InvalidArgument: one line with the variable, its value, what is wrong and what to do.
absl::StatusOr<std::optional<ClusterEnvironment>> DetectSlurm(const EnvironmentLookup& environment,
                                                              const std::optional<PortRange>& ports);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CLUSTER_SLURM_H_
