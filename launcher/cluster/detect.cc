#include "launcher/cluster/detect.h"

#include "absl/strings/str_cat.h"
#include "launcher/cluster/kubernetes.h"
#include "launcher/cluster/mpi.h"
#include "launcher/cluster/slurm.h"

namespace ddprun::launcher {

absl::StatusOr<ClusterEnvironment> DetectCluster(const EnvironmentLookup& environment,
                                                 const std::optional<PortRange>& ports, const std::string& full_name) {
  auto slurm = DetectSlurm(environment, ports);
  if (!slurm.ok()) return slurm.status();
  if (slurm->has_value()) {
    ClusterEnvironment result = **std::move(slurm);
    if (result.obstacle.empty() && StartedByMpirun(environment)) {
      result.obstacle =
          absl::StrCat("mpirun started this within ", result.description,
                       ", in its own step that omits nodes: use srun with one task per node instead of mpirun, "
                       "as in srun --ntasks=N --ntasks-per-node=1 ddprun ...");
    }
    return result;
  }
  auto kubernetes = DetectKubernetes(environment, full_name);
  if (!kubernetes.ok()) return kubernetes.status();
  if (kubernetes->has_value()) return **std::move(kubernetes);
  auto mpi = DetectMpi(environment);
  if (!mpi.ok()) return mpi.status();
  if (mpi->has_value()) return **std::move(mpi);
  return ClusterEnvironment();
}

}  // namespace ddprun::launcher
