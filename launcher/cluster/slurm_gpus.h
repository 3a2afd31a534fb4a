#ifndef DDPRUN_LAUNCHER_CLUSTER_SLURM_GPUS_H_
#define DDPRUN_LAUNCHER_CLUSTER_SLURM_GPUS_H_

#include "absl/status/status.h"
#include "launcher/config/cluster_environment.h"

namespace ddprun::launcher {

// Sets `gpus` and `gpu_binding`, and adds anything unusual to `notes`: the GPUs that SLURM gave the step on this node
// (SLURM_GPUS_ON_NODE, or in versions without it SLURM_STEP_GPUS, in a batch script SLURM_JOB_GPUS), or the subset that
// this task may see (CUDA_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES). No effect if SLURM gave none. InvalidArgument: one
// line with the variable.
absl::Status AddSlurmGpus(const EnvironmentLookup& environment, bool in_step, ClusterEnvironment& cluster);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CLUSTER_SLURM_GPUS_H_
