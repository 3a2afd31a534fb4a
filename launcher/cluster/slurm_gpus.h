#ifndef DDPRUN_LAUNCHER_CLUSTER_SLURM_GPUS_H_
#define DDPRUN_LAUNCHER_CLUSTER_SLURM_GPUS_H_

#include "absl/status/status.h"
#include "launcher/config/cluster_environment.h"
#include "launcher/config/environment_lookup.h"

namespace ddprun::launcher {

// Fills in `gpus`, `gpu_binding` and what is odd about them in `notes`: the GPUs that SLURM gave the step on this node
// (SLURM_GPUS_ON_NODE, before it existed SLURM_STEP_GPUS, in a batch script SLURM_JOB_GPUS), or those of them that
// this task may see (CUDA_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES) where that is less. Nothing, if SLURM gave none.
// InvalidArgument: one line with the variable.
absl::Status AddSlurmGpus(const EnvironmentLookup& environment, bool in_step, ClusterEnvironment& cluster);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CLUSTER_SLURM_GPUS_H_
