#include "launcher/cluster/detect.h"

#include "absl/strings/str_cat.h"
#include "launcher/cluster/allocation.h"
#include "launcher/cluster/json_variables.h"
#include "launcher/cluster/kubernetes.h"
#include "launcher/cluster/mpi.h"
#include "launcher/cluster/platforms.h"
#include "launcher/cluster/slurm.h"

namespace ddprun::launcher {

namespace {

// Completes what MPI's variables say by the hosts that the batch system gave the job.
void AddFirstHost(Allocation allocation, const std::optional<PortRange>& ports, ClusterEnvironment& mpi) {
  if (!mpi.nnodes || mpi.nnodes->value == 1 || mpi.endpoint || !mpi.obstacle.empty()) return;
  const size_t nodes = mpi.nnodes->value;
  // On some machines LSF's first host only runs the batch script, from which jsrun starts processes on the others.
  if (allocation.system == "LSF" && allocation.hosts.size() == nodes + 1) {
    allocation.hosts.erase(allocation.hosts.begin());
  }
  if (allocation.hosts.size() != nodes) return;
  mpi.endpoint = FirstHost(allocation, ports);
  mpi.node_index.reset();  // rank 0 may be elsewhere, as mpirun's options say
  mpi.job_id = allocation.job_id;
}

}  // namespace

absl::StatusOr<ClusterEnvironment> DetectCluster(const EnvironmentLookup& environment,
                                                 const std::optional<PortRange>& ports, const std::string& full_name,
                                                 const FileLookup& read_file) {
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
  if (!StartedByMpirun(environment)) {
    const auto variables = WithJsonVariables(environment, read_file);
    if (!variables.ok()) return variables.status();
    auto platform = DetectPlatform(*variables, ports);
    if (!platform.ok()) return platform.status();
    if (platform->has_value()) return **std::move(platform);
  }
  auto mpi = DetectMpi(environment);
  if (!mpi.ok()) return mpi.status();
  const auto allocation = ReadAllocation(environment, read_file);
  if (!allocation.ok()) return allocation.status();
  if (mpi->has_value()) {
    if (allocation->has_value()) AddFirstHost(**allocation, ports, **mpi);
    return **std::move(mpi);
  }
  return allocation->has_value() ? Placed(**allocation, ports) : ClusterEnvironment();
}

}  // namespace ddprun::launcher
