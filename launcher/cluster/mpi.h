#ifndef DDPRUN_LAUNCHER_CLUSTER_MPI_H_
#define DDPRUN_LAUNCHER_CLUSTER_MPI_H_

#include <optional>

#include "absl/status/statusor.h"
#include "launcher/config/cluster_environment.h"
#include "launcher/config/environment_lookup.h"

namespace ddprun::launcher {

// What the variables of an MPI launcher say; nullopt where there are none. Known are Open MPI's (OMPI_COMM_WORLD_*),
// MVAPICH's (MV2_COMM_WORLD_*, MVP_COMM_WORLD_*) and those of Hydra, with which MPICH and Intel MPI start (PMI_RANK,
// PMI_SIZE, MPI_LOCALNRANKS). One ddprun per node: its rank is the node's index; several on a node are an obstacle.
// They do not say on which host rank 0 is: the endpoint is MASTER_ADDR and MASTER_PORT (29500), if mpirun passes those
// on, else absent. InvalidArgument: one line that names the variable, its value and what is wrong.
absl::StatusOr<std::optional<ClusterEnvironment>> DetectMpi(const EnvironmentLookup& environment);

// Whether it was Open MPI's mpirun that started this process, be it within a job of a batch system. MPI's other
// variables do not tell: `srun --mpi=pmi2` sets some of them too, and so do people, for libraries that look for them.
bool StartedByMpirun(const EnvironmentLookup& environment);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CLUSTER_MPI_H_
