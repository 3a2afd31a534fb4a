#include "launcher/cluster/mpi.h"

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "launcher/cluster/variables.h"
#include "launcher/config/options.h"
#include "rendezvous/core/limits.h"

namespace ddprun::launcher {
namespace {

constexpr int64_t kMaxRanks = 100'000'000;

struct Family {
  const char* name;
  const char* rank;
  const char* size;
  const char* local_size;
  const char* program;
  const char* one_per_node;  // command that starts one process per node
};

// jsrun first, because it sets Open MPI's variables too, and Hydra last, because MVAPICH sets its variables too.
constexpr Family kFamilies[] = {
    {"jsrun", "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_LOCAL_SIZE", "jsrun",
     "jsrun --rs_per_host=1 --tasks_per_rs=1"},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "mpirun",
     "mpirun --map-by ppr:1:node"},
    {"MVAPICH", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_SIZE", "mpiexec", "mpiexec -ppn 1"},
    {"MVAPICH", "MVP_COMM_WORLD_RANK", "MVP_COMM_WORLD_SIZE", "MVP_COMM_WORLD_LOCAL_SIZE", "mpiexec", "mpiexec -ppn 1"},
    {"PALS", "PALS_RANKID", "PMI_SIZE", "PMI_LOCAL_SIZE", "mpiexec", "mpiexec --ppn 1"},
    {"MPI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", "mpiexec", "mpiexec -ppn 1"},
};

const Family* FindFamily(const EnvironmentLookup& environment) {
  for (const Family& family : kFamilies) {
    if (Variable(environment, family.rank).has_value() && Variable(environment, family.size).has_value()) {
      return &family;
    }
  }
  return nullptr;
}

absl::StatusOr<std::optional<Found<Endpoint>>> ReadEndpoint(const EnvironmentLookup& environment) {
  const std::optional<std::string> address = Variable(environment, "MASTER_ADDR");
  const auto port = NumberVariable(environment, "MASTER_PORT", 1, 65535);
  if (!port.ok()) return port.status();
  if (!address.has_value()) {
    const std::optional<std::string> azure = Variable(environment, "AZ_BATCH_MASTER_NODE");
    if (!azure.has_value()) return std::nullopt;
    const absl::StatusOr<Endpoint> endpoint = ParseEndpoint(*azure);
    if (!endpoint.ok()) return BadVariable("AZ_BATCH_MASTER_NODE", *azure, endpoint.status().message());
    return Found<Endpoint>{*endpoint, Assignment("AZ_BATCH_MASTER_NODE", *azure)};
  }
  const absl::StatusOr<std::string> host = ParseHost(*address);
  if (!host.ok()) return BadVariable("MASTER_ADDR", *address, host.status().message());
  const std::string source = Assignment("MASTER_ADDR", *address);
  if (!port->has_value()) return Found<Endpoint>{{*host, kDefaultMasterPort}, source};
  return Found<Endpoint>{{*host, static_cast<int>(**port)}, absl::StrCat(source, ", MASTER_PORT=", **port)};
}

absl::StatusOr<ClusterEnvironment> Read(const EnvironmentLookup& environment, const Family& family) {
  const auto size = NumberVariable(environment, family.size, 1, kMaxRanks);
  if (!size.ok()) return size.status();
  const auto rank = NumberVariable(environment, family.rank, 0, **size - 1);
  if (!rank.ok()) return rank.status();
  const auto local = NumberVariable(environment, family.local_size, 1, **size);
  if (!local.ok()) return local.status();

  ClusterEnvironment result;
  result.starter = ClusterEnvironment::Starter::kMpi;
  result.description = absl::StrCat("rank ", **rank, " of ", **size, " of ", family.name);
  if (local->value_or(1) > 1) {
    result.obstacle = absl::StrCat(family.program, " started ", **local, " processes on this node (", family.local_size,
                                   "=", **local, "): write ", family.one_per_node,
                                   " ddprun ... (ddprun starts the workers of a node itself, --nproc-per-node of them)"
                                   ", or give --standalone if each is an independent job");
    return result;
  }
  if (**size > rendezvous::kMaxNodes) {
    return BadVariable(family.size, absl::StrCat(**size),
                       absl::StrCat("a job has at most ", rendezvous::kMaxNodes, " nodes"));
  }
  result.nnodes = Found<int>{static_cast<int>(**size), absl::StrCat(family.size, "=", **size)};
  result.node_index = Found<int>{static_cast<int>(**rank), absl::StrCat(family.rank, "=", **rank)};
  result.topology = Found<std::string>{absl::StrCat(**rank), result.node_index->source};
  if (**size > 1) {
    auto endpoint = ReadEndpoint(environment);
    if (!endpoint.ok()) return endpoint.status();
    result.endpoint = *std::move(endpoint);
  }
  return result;
}

}  // namespace

absl::StatusOr<std::optional<ClusterEnvironment>> DetectMpi(const EnvironmentLookup& environment) {
  const Family* family = FindFamily(environment);
  if (family == nullptr) return std::nullopt;
  absl::StatusOr<ClusterEnvironment> result = Read(environment, *family);
  if (!result.ok()) return result.status();
  return std::optional(*std::move(result));
}

bool StartedByMpirun(const EnvironmentLookup& environment) {
  return Variable(environment, "OMPI_COMM_WORLD_LOCAL_SIZE").has_value();
}

}  // namespace ddprun::launcher
