#ifndef DDPRUN_LAUNCHER_CLUSTER_MPI_H_
#define DDPRUN_LAUNCHER_CLUSTER_MPI_H_

#include <optional>

#include "absl/status/statusor.h"
#include "launcher/config/cluster_environment.h"

namespace ddprun::launcher {

// Reads the variables of an MPI launcher; nullopt if there are none. Supported are Open MPI (OMPI_COMM_WORLD_*),
// MVAPICH (MV2_COMM_WORLD_*, MVP_COMM_WORLD_*), Hydra, the launcher of MPICH and Intel MPI (PMI_RANK, PMI_SIZE,
// MPI_LOCALNRANKS), HPE's PALS (PALS_RANKID) and IBM's jsrun (JSM_NAMESPACE_*). One ddprun runs per node: its rank is
// the node's index; several on a node are an obstacle. The variables do not contain the host of rank 0: the endpoint is
// MASTER_ADDR and MASTER_PORT (29500) if mpirun passes those on, or Azure's AZ_BATCH_MASTER_NODE, else absent.
// InvalidArgument: one line with the variable, its value and what is wrong.
absl::StatusOr<std::optional<ClusterEnvironment>> DetectMpi(const EnvironmentLookup& environment);

// True if Open MPI's mpirun started this process, even within a job of a batch system. MPI's other variables are not
// sufficient: `srun --mpi=pmi2` sets some of them too, and so do users, for libraries that read them.
bool StartedByMpirun(const EnvironmentLookup& environment);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CLUSTER_MPI_H_
