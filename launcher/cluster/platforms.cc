#include "launcher/cluster/platforms.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "launcher/cluster/derived_port.h"
#include "launcher/cluster/job_place.h"
#include "launcher/cluster/json_variables.h"
#include "launcher/cluster/variables.h"
#include "launcher/config/options.h"
#include "rendezvous/core/limits.h"

namespace ddprun::launcher {
namespace {

using rendezvous::kMaxNodes;

constexpr int kMaxTasks = 100'000'000;

// The variables of a platform; null if it does not set one.
struct Platform {
  absl::string_view name;
  std::array<const char*, 5> present = {};  // all are set on this platform, and the first one can be unset
  std::array<const char*, 3> absent = {};   // none is
  const char* nnodes = nullptr;             // null: the number of `hosts`
  const char* index = nullptr;              // null: the place of `host` in `hosts`
  const char* hosts = nullptr;              // all nodes, in order
  const char* host = nullptr;               // this node
  const char* address = nullptr;            // node 0; null: the first of `hosts`
  const char* port = nullptr;               // null: derived from the job's id and `port_seed`
  const char* port_seed = nullptr;          // differs between jobs of the same id
  const char* job_id = nullptr;
  const char* gpus = nullptr;
  const char* tasks = nullptr;        // processes of the job
  const char* local_tasks = nullptr;  // processes of the job on this node
  const char* one_per_node = "";      // how to have one process started on each node
  const char* remedy = "";            // how to name an endpoint, where there is none
  bool names_appear_late = false;
  ClusterEnvironment::Starter starter = ClusterEnvironment::Starter::kOther;
};

// The first whose variables are there counts, so the most specific come first: SkyPilot runs its tasks in Ray.
constexpr Platform kPlatforms[] = {
    {.name = "SkyPilot",
     .present = {"SKYPILOT_NODE_RANK", "SKYPILOT_NUM_NODES"},
     .nnodes = "SKYPILOT_NUM_NODES",
     .index = "SKYPILOT_NODE_RANK",
     .hosts = "SKYPILOT_NODE_IPS",
     .job_id = "SKYPILOT_TASK_ID",
     .gpus = "SKYPILOT_NUM_GPUS_PER_NODE"},
    {.name = "dstack",
     .present = {"DSTACK_NODE_RANK", "DSTACK_NODES_NUM"},
     .nnodes = "DSTACK_NODES_NUM",
     .index = "DSTACK_NODE_RANK",
     .hosts = "DSTACK_NODES_IPS",
     .address = "DSTACK_MASTER_NODE_IP",
     .job_id = "DSTACK_RUN_ID",
     .gpus = "DSTACK_GPUS_PER_NODE"},
    {.name = "Flux",
     .present = {"FLUX_TASK_RANK", "FLUX_JOB_NNODES", "FLUX_JOB_ID"},
     .nnodes = "FLUX_JOB_NNODES",
     .index = "FLUX_TASK_RANK",
     .job_id = "FLUX_JOB_ID",
     .tasks = "FLUX_JOB_SIZE",
     .one_per_node = "write flux run --nodes=N --ntasks=N ddprun ...",
     .remedy = "give --rdzv-endpoint=$(flux hostlist --nth=0 local), in the batch script or shell that calls flux run"},
    {.name = "SageMaker",
     .present = {"SM_HOSTS", "SM_CURRENT_HOST"},
     .hosts = "SM_HOSTS",
     .host = "SM_CURRENT_HOST",
     .job_id = "TRAINING_JOB_NAME",
     .gpus = "SM_NUM_GPUS",
     .names_appear_late = true},
    {.name = "SageMaker",
     .present = {"TRAINING_JOB_NAME", kResourceConfigHosts, kResourceConfigHost},
     .hosts = kResourceConfigHosts,
     .host = kResourceConfigHost,
     .job_id = "TRAINING_JOB_NAME",
     .names_appear_late = true},
    {.name = "Vertex AI",
     .present = {"CLUSTER_SPEC", kClusterSpecIndex, kClusterSpecHosts},
     .index = kClusterSpecIndex,
     .hosts = kClusterSpecHosts,
     .port = kClusterSpecPort,
     .job_id = "CLOUD_ML_JOB_ID",
     .names_appear_late = true},
    {.name = "AzureML",
     .present = {"AZUREML_NODE_COUNT", "NODE_RANK", "MASTER_ADDR"},
     .absent = {"TORCHELASTIC_RUN_ID"},
     .nnodes = "AZUREML_NODE_COUNT",
     .index = "NODE_RANK",
     .address = "MASTER_ADDR",
     .port = "MASTER_PORT",
     .job_id = "AZUREML_RUN_ID",
     .tasks = "WORLD_SIZE",
     .one_per_node = "set the distribution's process_count_per_instance to 1"},
    // MASTER_PORT belongs to Ray's own process group.
    {.name = "Ray Train",
     .present = {"RAY_JOB_ID", "LOCAL_WORLD_SIZE", "WORLD_SIZE", "RANK", "MASTER_ADDR"},
     .absent = {"TORCHELASTIC_RUN_ID"},
     .nnodes = "WORLD_SIZE",
     .index = "RANK",
     .address = "MASTER_ADDR",
     .port_seed = "MASTER_PORT",
     .job_id = "RAY_JOB_ID",
     .local_tasks = "LOCAL_WORLD_SIZE",
     .one_per_node = "give ScalingConfig one worker on each node, with all its GPUs"},
    {.name = "Kubernetes",
     .present = {"WORLD_SIZE", "RANK", "MASTER_ADDR", "KUBERNETES_SERVICE_HOST"},
     .absent = {"PET_NNODES", "LOCAL_RANK", "TORCHELASTIC_RUN_ID"},
     .nnodes = "WORLD_SIZE",
     .index = "RANK",
     .address = "MASTER_ADDR",
     .port = "MASTER_PORT",
     .names_appear_late = true,
     .starter = ClusterEnvironment::Starter::kKubernetes},
};

class Reader {
 public:
  Reader(const EnvironmentLookup& environment, const std::optional<PortRange>& ports, const Platform& platform)
      : environment_(environment), ports_(ports), platform_(platform) {}

  absl::StatusOr<ClusterEnvironment> Read() {
    result_.starter = platform_.starter;
    result_.endpoint_appears_late = platform_.names_appear_late;
    if (absl::Status status = ReadJobId(); !status.ok()) return status;
    absl::StatusOr<Found<int>> nnodes = ReadNodeCount();
    if (!nnodes.ok()) return nnodes.status();
    if (absl::Status status = ReadTasks(nnodes->value); !status.ok()) return status;
    if (!result_.obstacle.empty()) {
      result_.description = absl::StrCat("one of several processes of ", platform_.name);
      return std::move(result_);
    }
    result_.remedy = platform_.remedy;
    absl::StatusOr<Found<int>> index = ReadIndex(nnodes->value);
    if (!index.ok()) return index.status();
    SetPlace(platform_.name, *std::move(nnodes), *std::move(index), hosts_, result_);
    if (absl::Status status = ReadGpus(); !status.ok()) return status;
    if (result_.nnodes->value > 1) {
      if (absl::Status status = ReadEndpoint(); !status.ok()) return status;
    }
    return std::move(result_);
  }

 private:
  std::optional<std::string> Value(const char* name) const {
    return name == nullptr ? std::nullopt : Variable(environment_, name);
  }

  absl::StatusOr<std::optional<Found<int>>> Number(const char* name, int64_t min, int64_t max) const {
    return FoundNumber(environment_, name, min, max);
  }

  absl::Status ReadJobId() {
    const std::optional<std::string> id = Value(platform_.job_id);
    if (!id.has_value()) return absl::OkStatus();
    if (id->size() > rendezvous::kMaxNameBytes) return BadVariable(platform_.job_id, *id, "it is too long");
    result_.job_id = Found<std::string>{*id, Assignment(platform_.job_id, *id)};
    return absl::OkStatus();
  }

  absl::StatusOr<Found<int>> ReadNodeCount() {
    if (platform_.hosts != nullptr) {
      auto hosts = HostNames(environment_, platform_.hosts);
      if (!hosts.ok()) return hosts.status();
      if (hosts->has_value()) hosts_ = **std::move(hosts);
    }
    const auto nnodes = Number(platform_.nnodes, 1, kMaxNodes);
    if (!nnodes.ok()) return nnodes.status();
    const int count = nnodes->has_value() ? (*nnodes)->value : static_cast<int>(hosts_.size());
    if (!hosts_.empty() && hosts_.size() != static_cast<size_t>(count)) {
      return BadVariable(
          platform_.nnodes, absl::StrCat(count),
          absl::StrCat("but ", platform_.hosts, " has ", Counted(static_cast<int64_t>(hosts_.size()), "node")));
    }
    if (nnodes->has_value()) return **nnodes;
    return Found<int>{count, Assignment(platform_.hosts, *Value(platform_.hosts))};
  }

  absl::StatusOr<Found<int>> ReadIndex(int count) const {
    if (platform_.index != nullptr) {
      const auto index = Number(platform_.index, 0, count - 1);
      if (!index.ok()) return index.status();
      return **index;  // one of those that must be present
    }
    const std::string host = *Value(platform_.host);
    const auto place = std::find(hosts_.begin(), hosts_.end(), host);
    if (place == hosts_.end()) return BadVariable(platform_.host, host, absl::StrCat("it is not in ", platform_.hosts));
    return Found<int>{static_cast<int>(place - hosts_.begin()), Assignment(platform_.host, host)};
  }

  absl::Status ReadGpus() {
    auto gpus = Number(platform_.gpus, 0, kMaxGpus);
    if (!gpus.ok()) return gpus.status();
    if (!gpus->has_value()) return absl::OkStatus();
    const auto visible = VisibleGpus(environment_);
    if (!visible.ok()) return visible.status();
    if (visible->has_value() && (*visible)->value < (*gpus)->value) *gpus = *visible;
    if ((*gpus)->value > 0) result_.gpus = **gpus;
    return absl::OkStatus();
  }

  // Several processes on a node are an obstacle.
  absl::Status ReadTasks(int nnodes) {
    const auto tasks = Number(platform_.tasks, 1, kMaxTasks);
    if (!tasks.ok()) return tasks.status();
    const auto local = Number(platform_.local_tasks, 1, kMaxTasks);
    if (!local.ok()) return local.status();
    std::string started;
    if (tasks->has_value() && (*tasks)->value > nnodes) {
      started = absl::StrCat((*tasks)->value, " processes on ", Counted(nnodes, "node"), " (", (*tasks)->source, ")");
    } else if (local->has_value() && (*local)->value > 1) {
      started = absl::StrCat((*local)->value, " processes on this node (", (*local)->source, ")");
    }
    if (started.empty()) return absl::OkStatus();
    result_.obstacle = absl::StrCat(platform_.name, " started ", started, ": ", platform_.one_per_node,
                                    " (ddprun starts the workers of a node itself, --nproc-per-node of them), or give "
                                    "--standalone if each is an independent job");
    return absl::OkStatus();
  }

  absl::Status ReadEndpoint() {
    std::string host = hosts_.empty() ? "" : hosts_.front();
    std::string source = hosts_.empty() ? "" : Assignment(platform_.hosts, *Value(platform_.hosts));
    if (const std::optional<std::string> address = Value(platform_.address); address.has_value()) {
      const absl::StatusOr<std::string> parsed = ParseHost(*address);
      if (!parsed.ok()) return BadVariable(platform_.address, *address, parsed.status().message());
      host = *parsed;
      source = Assignment(platform_.address, *address);
    }
    if (host.empty()) return absl::OkStatus();
    const auto given = Number(platform_.port, 1, 65535);
    if (!given.ok()) return given.status();
    int port = kDefaultRdzvPort;
    if (given->has_value()) {
      port = (*given)->value;
      absl::StrAppend(&source, ", ", (*given)->source);
    } else if (result_.job_id.has_value()) {
      port = DerivedPort(absl::StrCat(result_.job_id->value, Value(platform_.port_seed).value_or("")), ports_);
      absl::StrAppend(&source, ", ", result_.job_id->source);
    }
    result_.endpoint = Found<Endpoint>{{host, port}, source};
    return absl::OkStatus();
  }

  const EnvironmentLookup& environment_;
  const std::optional<PortRange>& ports_;
  const Platform& platform_;
  std::vector<std::string> hosts_;
  ClusterEnvironment result_;
};

}  // namespace

absl::StatusOr<std::optional<ClusterEnvironment>> DetectPlatform(const EnvironmentLookup& environment,
                                                                 const std::optional<PortRange>& ports) {
  const auto is_set = [&](const char* name) { return name != nullptr && Variable(environment, name).has_value(); };
  const auto has_all = [&](const Platform& platform) {
    return std::all_of(platform.present.begin(), platform.present.end(),
                       [&](const char* name) { return name == nullptr || is_set(name); }) &&
           std::none_of(platform.absent.begin(), platform.absent.end(), is_set);
  };
  const auto* const platform = std::find_if(std::begin(kPlatforms), std::end(kPlatforms), has_all);
  if (platform == std::end(kPlatforms)) return std::nullopt;
  absl::StatusOr<ClusterEnvironment> result = Reader(environment, ports, *platform).Read();
  if (!result.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(result.status().message(), " (", platform->name,
                                                   " sets this; unset ", platform->present.front(), " to ignore it)"));
  }
  return std::optional(*std::move(result));
}

}  // namespace ddprun::launcher
