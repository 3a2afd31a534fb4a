#ifndef DDPRUN_LAUNCHER_CLUSTER_DETECT_H_
#define DDPRUN_LAUNCHER_CLUSTER_DETECT_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "launcher/config/cluster_environment.h"
#include "launcher/config/flag_value.h"

namespace ddprun::launcher {

// Detects what started this launcher, from environment variables and the files that they name. The first of these that
// is found counts; Starter::kNone if none is:
//   - SLURM (slurm.h), which takes precedence because srun sets MPI's variables as well. mpirun in a SLURM job is an
//     obstacle: it creates its own step that omits nodes.
//   - an Indexed Job of Kubernetes (kubernetes.h); `full_name` is this host's
//   - Open MPI's mpirun
//   - a platform that starts one command on each node: SkyPilot, dstack, Flux, Amazon SageMaker, Azure Machine
//     Learning, Vertex AI, Ray Train, and pods that have torch's variables for each pod (Kubeflow's PyTorchJob without
//     PET_ variables, Volcano, Alibaba's PAI)
//   - another MPI launcher: that of MVAPICH, Hydra (MPICH, Intel MPI), HPE's PALS, IBM's jsrun
//   - a batch system that runs the batch script on the first of the job's hosts: PBS, LSF, Grid Engine
//
// Platforms and MPI: the endpoint is the address of node 0, at the port that the system names for it, else at
// DerivedPort of the job, within `ports`. Absent for one node, which needs none, and where nothing tells the host of
// rank 0: mpirun must pass on MASTER_ADDR, or a batch system know the hosts. Several processes on a node are an
// obstacle.
//
// Batch systems: pbsdsh, blaunch or an MPI launcher that started a process on each host gives the nodes, and the batch
// system the endpoint; the launcher on that host hosts the server, whatever its index.
//
// InvalidArgument: one line with the variable, its value, what is wrong and what to unset to ignore the system.
absl::StatusOr<ClusterEnvironment> DetectCluster(const EnvironmentLookup& environment,
                                                 const std::optional<PortRange>& ports, const std::string& full_name,
                                                 const FileLookup& read_file);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CLUSTER_DETECT_H_
