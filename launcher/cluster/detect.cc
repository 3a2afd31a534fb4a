#include "launcher/cluster/detect.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/endpoint.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "launcher/cluster/kubernetes.h"
#include "launcher/cluster/slurm.h"
#include "launcher/cluster/variables.h"
#include "launcher/config/options.h"
#include "rendezvous/core/limits.h"

namespace ddprun::launcher {
namespace {

using rendezvous::kMaxNodes;
using Starter = ClusterEnvironment::Starter;

constexpr int kMaxTasks = 100'000'000;

// Names of the values that two platforms write as JSON; no variable has such a name (WithJsonVariables).
constexpr char kClusterSpecHosts[] = "hosts in CLUSTER_SPEC";  // "host0 host1"
constexpr char kClusterSpecIndex[] = "place in CLUSTER_SPEC";
constexpr char kClusterSpecPort[] = "port in CLUSTER_SPEC";
constexpr char kResourceConfigHosts[] = "hosts in resourceconfig.json";
constexpr char kResourceConfigHost[] = "current_host in resourceconfig.json";

enum class Kind {
  kPlatform,  // starts one command on each node of a job
  kMpi,       // an MPI launcher, which must start one process on each node
  kBatch,     // runs the batch script on the first host of a job
};

// The variables of a system that starts launchers; null: the system does not set one.
struct System {
  absl::string_view name;
  Kind kind = Kind::kPlatform;
  std::array<const char*, 5> present = {};  // all are set by this system, and the first one can be unset
  std::array<const char*, 3> absent = {};   // none is set
  const char* nnodes = nullptr;             // null: the number of `hosts`
  const char* index = nullptr;              // null: the place of `host` in `hosts`
  int first_index = 0;
  const char* hosts = nullptr;    // all nodes, in order
  bool hosts_in_file = false;     // `hosts` names a file, whose lines begin with a host
  bool slots_follow = false;      // each host is followed by a number
  const char* host = nullptr;     // this node
  const char* address = nullptr;  // node 0; null: `endpoint`, else the first of `hosts`
  const char* port = nullptr;     // null: derived from the job's id and `port_seed`
  int default_port = kDefaultRdzvPort;
  const char* endpoint = nullptr;   // HOST:PORT of node 0
  const char* port_seed = nullptr;  // differs between jobs of the same id
  const char* job_id = nullptr;
  const char* array_index = nullptr;  // place of a job in an array, if its id does not have it
  const char* gpus = nullptr;
  const char* tasks = nullptr;        // processes of the job
  const char* local_tasks = nullptr;  // processes of the job on this node
  const char* one_per_node = "";      // how to have one process started on each node; "-n N" becomes their number
  const char* remedy = "";            // how to name an endpoint, where there is none
  bool names_appear_late = false;
  Starter starter = Starter::kOther;
};

constexpr System Mpi(absl::string_view name, const char* rank, const char* size, const char* local_size,
                     const char* one_per_node) {
  return {.name = name,
          .kind = Kind::kMpi,
          .present = {rank, size},
          .nnodes = size,
          .index = rank,
          .address = "MASTER_ADDR",  // if the command that started MPI passes it on
          .port = "MASTER_PORT",
          .default_port = kDefaultMasterPort,
          .endpoint = "AZ_BATCH_MASTER_NODE",
          .local_tasks = local_size,
          .one_per_node = one_per_node,
          .starter = Starter::kMpi};
}

// The first whose variables are there counts, so the most specific come first: SkyPilot runs its tasks in Ray, jsrun
// sets Open MPI's variables too, MVAPICH those of Hydra (MPICH, Intel MPI).
constexpr System kSystems[] = {
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
     .starter = Starter::kKubernetes},
    Mpi("jsrun", "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_LOCAL_SIZE",
        "write jsrun --rs_per_host=1 --tasks_per_rs=1 ddprun ..."),
    Mpi("Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE",
        "write mpirun --map-by ppr:1:node ddprun ..."),
    Mpi("MVAPICH", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_SIZE",
        "write mpiexec -ppn 1 ddprun ..."),
    Mpi("MVAPICH", "MVP_COMM_WORLD_RANK", "MVP_COMM_WORLD_SIZE", "MVP_COMM_WORLD_LOCAL_SIZE",
        "write mpiexec -ppn 1 ddprun ..."),
    Mpi("PALS", "PALS_RANKID", "PMI_SIZE", "PMI_LOCAL_SIZE", "write mpiexec --ppn 1 ddprun ..."),
    Mpi("MPI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", "write mpiexec -ppn 1 ddprun ..."),
    {.name = "PBS",
     .kind = Kind::kBatch,
     .present = {"PBS_JOBID", "PBS_NODEFILE"},
     .nnodes = "PBS_NUM_NODES",
     .index = "PBS_NODENUM",  // set in processes that pbsdsh starts
     .hosts = "PBS_NODEFILE",
     .hosts_in_file = true,
     .job_id = "PBS_JOBID",
     .one_per_node = "ddprun --hosts=@$PBS_NODEFILE ... or mpiexec -n N -ppn 1 ddprun ..."},
    {.name = "LSF",
     .kind = Kind::kBatch,
     .present = {"LSB_JOBID", "LSB_MCPU_HOSTS"},
     .index = "LSF_PM_TASKID",  // set in processes that blaunch starts
     .first_index = 1,
     .hosts = "LSB_MCPU_HOSTS",
     .slots_follow = true,
     .job_id = "LSB_JOBID",
     .array_index = "LSB_JOBINDEX",
     .one_per_node = "ddprun --hosts=@$LSB_DJOB_HOSTFILE ... or blaunch -z \"$(sort -u $LSB_DJOB_HOSTFILE | xargs)\" "
                     "ddprun ..."},
    // JOB_ID alone may have any meaning.
    {.name = "Grid Engine",
     .kind = Kind::kBatch,
     .present = {"JOB_ID", "PE_HOSTFILE"},
     .nnodes = "NHOSTS",
     .hosts = "PE_HOSTFILE",
     .hosts_in_file = true,
     .job_id = "JOB_ID",
     .array_index = "SGE_TASK_ID",
     .one_per_node = "ddprun --hosts=$(cut -d' ' -f1 $PE_HOSTFILE | paste -sd,) ... or mpiexec -n N -ppn 1 ddprun ..."},
};

// Returns the first system of this kind whose variables are set; null if there is none.
const System* Find(const EnvironmentLookup& environment, Kind kind) {
  const auto is_set = [&](const char* name) { return name != nullptr && Variable(environment, name).has_value(); };
  const auto* const found = std::find_if(std::begin(kSystems), std::end(kSystems), [&](const System& system) {
    return system.kind == kind &&
           std::all_of(system.present.begin(), system.present.end(),
                       [&](const char* name) { return name == nullptr || is_set(name); }) &&
           std::none_of(system.absent.begin(), system.absent.end(), is_set);
  });
  return found == std::end(kSystems) ? nullptr : found;
}

// Reads the variables of one system.
class Reader {
 public:
  Reader(const EnvironmentLookup& environment, const FileLookup& read_file, const std::optional<PortRange>& ports,
         const System& system)
      : environment_(environment), read_file_(read_file), ports_(ports), system_(system) {}

  absl::StatusOr<ClusterEnvironment> Read() {
    if (const absl::Status status = ReadAll(); !status.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(status.message(), " (", system_.name, " sets this; unset ",
                                                     system_.present.front(), " to ignore it)"));
    }
    return result_;
  }

  // Completes what an MPI launcher tells within this batch job. REQUIRES: Read.
  void AddFirstHost(ClusterEnvironment& mpi) {
    if (!mpi.nnodes || mpi.nnodes->value == 1 || mpi.endpoint || !mpi.obstacle.empty()) return;
    const size_t nodes = mpi.nnodes->value;
    // On some machines LSF's first host only runs the batch script, from which jsrun starts processes on the others.
    if (system_.name == "LSF" && hosts_.size() == nodes + 1) hosts_.erase(hosts_.begin());
    if (hosts_.size() != nodes || !ReadEndpoint().ok()) return;
    mpi.endpoint = result_.endpoint;
    mpi.node_index.reset();  // rank 0 may be elsewhere, as mpirun's options say
    mpi.job_id = result_.job_id;
  }

 private:
  std::optional<std::string> Value(const char* name) const {
    return name == nullptr ? std::nullopt : Variable(environment_, name);
  }

  absl::StatusOr<std::optional<Found<int>>> Number(const char* name, int64_t min, int64_t max) const {
    return FoundNumber(environment_, name, min, max);
  }

  absl::Status ReadAll() {
    result_.starter = system_.starter;
    result_.endpoint_appears_late = system_.names_appear_late;
    DDPRUN_RETURN_IF_ERROR(ReadJobId());
    DDPRUN_ASSIGN_OR_RETURN(const auto local, Number(system_.local_tasks, 1, kMaxTasks));
    if (local.has_value() && local->value > 1) {
      SetObstacle(absl::StrCat(local->value, " processes on this node (", local->source, ")"));
      return absl::OkStatus();
    }
    DDPRUN_RETURN_IF_ERROR(ReadHosts());
    DDPRUN_ASSIGN_OR_RETURN(Found<int> nnodes, ReadNodeCount());
    return system_.kind == Kind::kBatch ? ReadBatchPlace(nnodes) : ReadPlace(std::move(nnodes));
  }

  absl::Status ReadJobId() {
    std::optional<std::string> id = Value(system_.job_id);
    if (!id.has_value()) return absl::OkStatus();
    const size_t longest = rendezvous::kMaxNameBytes / (system_.array_index == nullptr ? 1 : 2);
    if (id->size() > longest) return BadVariable(system_.job_id, *id, "it is too long");
    const std::string source = Assignment(system_.job_id, *id);
    // "0" in LSF and "undefined" in Grid Engine for a job that is in no array.
    const std::string element = Value(system_.array_index).value_or("0");
    if (element != "0" && element != "undefined") absl::StrAppend(&*id, ".", element.substr(0, 32));
    result_.job_id = Found<std::string>{*std::move(id), source};
    return absl::OkStatus();
  }

  // Reads at least one and at most kMaxNodes hosts, separated by blanks, commas or newlines, or a JSON list of strings.
  absl::Status ReadHosts() {
    const std::optional<std::string> value = Value(system_.hosts);
    if (!value.has_value()) return absl::OkStatus();
    hosts_source_ = Assignment(system_.hosts, *value);
    std::string names = *value;
    if (system_.hosts_in_file) {
      names.clear();
      for (const absl::string_view line : absl::StrSplit(read_file_(*value), '\n')) {
        const std::vector<absl::string_view> words = absl::StrSplit(line, absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
        if (!words.empty()) absl::StrAppend(&names, words.front(), " ");
      }
      if (names.empty()) return absl::OkStatus();  // the file can't be read
    }
    std::set<std::string> known;
    size_t words = 0;
    for (const absl::string_view word : absl::StrSplit(names, absl::ByAnyChar(" \t\n,[]\""), absl::SkipEmpty())) {
      if (words++ % 2 == 1 && system_.slots_follow) continue;
      const absl::StatusOr<std::string> host = ParseHost(word);
      if (!host.ok()) return BadVariable(system_.hosts, names, host.status().message());
      const bool repeated = !known.insert(*host).second;
      repeats_ = repeats_ || repeated;
      // A batch system names a host once for each of its slots.
      if (!repeated || system_.kind != Kind::kBatch) hosts_.push_back(*host);
    }
    if (hosts_.empty()) return BadVariable(system_.hosts, names, "it names no host");
    if (hosts_.size() > kMaxNodes) {
      return BadVariable(system_.hosts, names, absl::StrCat("a job has at most ", kMaxNodes, " nodes"));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Found<int>> ReadNodeCount() const {
    DDPRUN_ASSIGN_OR_RETURN(const auto nnodes, Number(system_.nnodes, 1, kMaxNodes));
    const int listed = static_cast<int>(hosts_.size());
    if (!nnodes.has_value() || (system_.kind == Kind::kBatch && listed > 0)) {
      return Found<int>{std::max(listed, 1), hosts_source_};
    }
    if (listed > 0 && listed != nnodes->value) {
      return BadVariable(system_.nnodes, absl::StrCat(nnodes->value),
                         absl::StrCat("but ", system_.hosts, " has ", Counted(listed, "node")));
    }
    return *nnodes;
  }

  // Several processes on a node are an obstacle.
  void SetObstacle(absl::string_view started) {
    result_.description = absl::StrCat("one of several processes of ", system_.name);
    result_.obstacle = absl::StrCat(system_.name, " started ", started, ": ", system_.one_per_node,
                                    " (ddprun starts the workers of a node itself, --nproc-per-node of them), or give "
                                    "--standalone if each is an independent job");
  }

  // Sets the description, and what follows from this node's index: topology, and with all names in hosts_, if there are
  // several, its own name.
  void SetPlace(Found<int> nnodes, Found<int> index) {
    result_.description = absl::StrCat("node ", index.value + 1, " of ", nnodes.value, " of ", system_.name);
    if (result_.job_id) absl::StrAppend(&result_.description, " job ", result_.job_id->value);
    result_.topology = Found<std::string>{absl::StrCat(index.value), index.source};
    if (system_.kind == Kind::kPlatform && nnodes.value > 1 && !hosts_.empty()) {
      result_.host = Found<std::string>{hosts_[index.value], index.source};
      result_.hosts = hosts_;
    }
    result_.nnodes = std::move(nnodes);
    result_.node_index = std::move(index);
  }

  // Reads the place of this process among the nodes of a platform or an MPI launcher.
  absl::Status ReadPlace(Found<int> nnodes) {
    DDPRUN_ASSIGN_OR_RETURN(const auto tasks, Number(system_.tasks, 1, kMaxTasks));
    if (tasks.has_value() && tasks->value > nnodes.value) {
      SetObstacle(
          absl::StrCat(tasks->value, " processes on ", Counted(nnodes.value, "node"), " (", tasks->source, ")"));
      return absl::OkStatus();
    }
    result_.remedy = system_.remedy;
    DDPRUN_ASSIGN_OR_RETURN(Found<int> index, ReadIndex(nnodes.value));
    SetPlace(std::move(nnodes), std::move(index));
    DDPRUN_RETURN_IF_ERROR(ReadGpus());
    return result_.nnodes->value > 1 ? ReadEndpoint() : absl::OkStatus();
  }

  absl::StatusOr<Found<int>> ReadIndex(int count) const {
    if (system_.index != nullptr) {
      DDPRUN_ASSIGN_OR_RETURN(const auto index, Number(system_.index, 0, count - 1));
      return *index;  // one of those that must be present
    }
    const std::string host = *Value(system_.host);
    const auto place = std::find(hosts_.begin(), hosts_.end(), host);
    if (place == hosts_.end()) return BadVariable(system_.host, host, absl::StrCat("it is not in ", system_.hosts));
    return Found<int>{static_cast<int>(place - hosts_.begin()), Assignment(system_.host, host)};
  }

  absl::Status ReadGpus() {
    DDPRUN_ASSIGN_OR_RETURN(auto gpus, Number(system_.gpus, 0, kMaxGpus));
    if (!gpus.has_value()) return absl::OkStatus();
    DDPRUN_ASSIGN_OR_RETURN(const auto visible, VisibleGpus(environment_));
    if (visible.has_value() && visible->value < gpus->value) gpus = visible;
    if (gpus->value > 0) result_.gpus = *gpus;
    return absl::OkStatus();
  }

  // Sets the endpoint, if it is known: node 0, at the port that the system names, else one derived from the job's id.
  absl::Status ReadEndpoint() {
    DDPRUN_ASSIGN_OR_RETURN(const auto given, Number(system_.port, 1, 65535));
    std::string host = hosts_.empty() ? "" : hosts_.front();
    std::string source = hosts_source_;
    if (const std::optional<std::string> address = Value(system_.address); address.has_value()) {
      const absl::StatusOr<std::string> parsed = ParseHost(*address);
      if (!parsed.ok()) return BadVariable(system_.address, *address, parsed.status().message());
      host = *parsed;
      source = Assignment(system_.address, *address);
    } else if (const std::optional<std::string> both = Value(system_.endpoint); both.has_value()) {
      const absl::StatusOr<Endpoint> parsed = ParseEndpoint(*both);
      if (!parsed.ok()) return BadVariable(system_.endpoint, *both, parsed.status().message());
      result_.endpoint = Found<Endpoint>{*parsed, Assignment(system_.endpoint, *both)};
      return absl::OkStatus();
    }
    if (host.empty()) return absl::OkStatus();
    int port = system_.default_port;
    if (given.has_value()) {
      port = given->value;
      absl::StrAppend(&source, ", ", given->source);
    } else if (result_.job_id.has_value()) {
      port = DerivedPort(absl::StrCat(result_.job_id->value, Value(system_.port_seed).value_or("")), ports_);
      absl::StrAppend(&source, ", ", result_.job_id->source);
    }
    result_.endpoint = Found<Endpoint>{{host, port}, source};
    return absl::OkStatus();
  }

  // Reads the place of this process in a batch job: on one of the nodes, if the system's own tool started one on each
  // (pbsdsh, blaunch), else in the batch script of several nodes, for which the remedy says what to do. Nothing is set
  // for a job of one node.
  absl::Status ReadBatchPlace(Found<int> nnodes) {
    DDPRUN_ASSIGN_OR_RETURN(const std::optional<Found<int>> index, ReadTask(nnodes.value));
    if (nnodes.value == 1 && !index.has_value()) {
      result_ = ClusterEnvironment();
      return absl::OkStatus();
    }
    DDPRUN_RETURN_IF_ERROR(ReadEndpoint());
    const std::string job = absl::StrCat(system_.name, " job ", result_.job_id->value);
    const std::string nodes = Counted(nnodes.value, "node");
    const std::string as_in = absl::StrCat(
        "as in ", absl::StrReplaceAll(system_.one_per_node, {{"-n N", absl::StrCat("-n ", nnodes.value)}}));
    if (nnodes.value == 1) {
      result_.description = absl::StrCat("node ", index->value + 1, " of ", job);
      result_.node_index = *index;  // the number of nodes is unknown
    } else if (index.has_value() && (repeats_ || index->value >= nnodes.value)) {
      // Each line of PBS's file is a place for a process, and each slot of LSF's hosts is one.
      result_.description = absl::StrCat("one of the ", nodes, " of ", job);
      result_.obstacle = absl::StrCat(system_.name, " started several processes on a node (", nnodes.source, ", ",
                                      index->source, "): start one on each, ", as_in,
                                      " (ddprun starts the workers of a node itself, --nproc-per-node of them)");
    } else if (index.has_value()) {
      SetPlace(std::move(nnodes), *index);
      result_.node_index.reset();  // blaunch -z may name the hosts in another order
    } else {
      result_.description = absl::StrCat("one of the ", nodes, " of ", job);
      result_.remedy = absl::StrCat(system_.name, " gave this job ", nodes, " (", nnodes.source,
                                    "), but this ddprun starts workers on one of them: start it on each, ", as_in);
    }
    return absl::OkStatus();
  }

  // Reads the index of a process that a tool of the batch system started; absent in the batch script.
  absl::StatusOr<std::optional<Found<int>>> ReadTask(int nnodes) const {
    // PBS_TASKNUM is 1 for the batch script, and 00000002 or the like for what pbsdsh starts.
    if (hosts_.size() == 1 || Value("PBS_TASKNUM").value_or("") == "1") return std::nullopt;
    auto task = Number(system_.index, system_.first_index, kMaxTasks);
    if (!task.ok() || !task->has_value()) return task;
    (*task)->value -= system_.first_index;
    if ((*task)->value == 0 && nnodes == 1) return std::nullopt;  // the job may have one host
    return task;
  }

  const EnvironmentLookup& environment_;
  const FileLookup& read_file_;
  const std::optional<PortRange>& ports_;
  const System& system_;
  std::vector<std::string> hosts_;
  std::string hosts_source_;
  bool repeats_ = false;  // a host is named more than once
  ClusterEnvironment result_;
};

using Json = nlohmann::json;
using Variables = std::map<std::string, std::string>;

constexpr char kResourceConfig[] = "/opt/ml/input/config/resourceconfig.json";

// {"cluster":{"workerpool0":["a:2222"],"workerpool1":["b:2222","c:2222"]},"task":{"type":"workerpool1","index":0},...}
absl::Status ReadClusterSpec(const std::string& text, Variables& variables) {
  const auto malformed = [&] {
    return BadVariable("CLUSTER_SPEC", text, "it is not a JSON object with the hosts of worker pools and a task");
  };
  const Json spec = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  const Json none = Json::object();
  const Json& pools = spec.is_object() && spec.contains("cluster") ? spec["cluster"] : none;
  const Json& task = spec.is_object() && spec.contains("task") ? spec["task"] : none;
  if (!pools.is_object() || !task.is_object()) return malformed();
  const Json type = task.value("type", none), index = task.value("index", none);
  if (!type.is_string() || !index.is_number_unsigned()) return malformed();

  std::string hosts;
  size_t count = 0;
  for (const char* const pool : {"workerpool0", "workerpool1"}) {
    const Json machines = pools.value(pool, Json::array());
    if (!machines.is_array()) return malformed();
    if (type == pool) {
      if (index.get<size_t>() >= machines.size()) return malformed();
      variables[kClusterSpecIndex] = absl::StrCat(count + index.get<size_t>());
    }
    for (const Json& machine : machines) {
      if (!machine.is_string()) return malformed();
      const absl::StatusOr<Endpoint> endpoint = ParseEndpoint(machine.get<std::string>());
      if (!endpoint.ok()) return BadVariable("CLUSTER_SPEC", text, endpoint.status().message());
      if (count++ == 0) variables[kClusterSpecPort] = absl::StrCat(endpoint->port);
      absl::StrAppend(&hosts, count == 1 ? "" : " ", endpoint->host);
    }
  }
  variables[kClusterSpecHosts] = hosts;
  return absl::OkStatus();
}

// {"current_host":"algo-1","hosts":["algo-1","algo-2"],...}
absl::Status ReadResourceConfig(const std::string& text, Variables& variables) {
  const Json config = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object() || !config.contains("hosts") || !config.contains("current_host") ||
      !config["current_host"].is_string()) {
    return absl::InvalidArgumentError(
        absl::StrCat(kResourceConfig, " is not a JSON object with hosts and current_host"));
  }
  variables[kResourceConfigHosts] = config["hosts"].dump(-1, ' ', false, Json::error_handler_t::replace);
  variables[kResourceConfigHost] = config["current_host"].get<std::string>();
  return absl::OkStatus();
}

// Returns `environment` with further variables:
//   - from Vertex AI's CLUSTER_SPEC, the machines that train: worker pools 0 and 1, in this order. The others
//     (parameter servers, evaluators) are no nodes of the job; there the variables are absent.
//   - from SageMaker's /opt/ml/input/config/resourceconfig.json, for containers without its training toolkit
// InvalidArgument: one line, if one of the two is malformed.
absl::StatusOr<EnvironmentLookup> WithJsonVariables(EnvironmentLookup environment, const FileLookup& read_file) {
  Variables variables;
  if (const auto spec = Variable(environment, "CLUSTER_SPEC");
      spec.has_value() && Variable(environment, "CLOUD_ML_JOB_ID").has_value()) {
    DDPRUN_RETURN_IF_ERROR(ReadClusterSpec(*spec, variables));
  }
  if (Variable(environment, "TRAINING_JOB_NAME").has_value() && !Variable(environment, "SM_HOSTS").has_value()) {
    const std::string config = read_file(kResourceConfig);
    if (!config.empty()) DDPRUN_RETURN_IF_ERROR(ReadResourceConfig(config, variables));
  }
  if (variables.empty()) return environment;
  return [environment = std::move(environment), variables = std::move(variables)](const std::string& name) {
    const auto found = variables.find(name);
    return found == variables.end() ? environment(name) : std::optional<std::string>(found->second);
  };
}

// True if Open MPI's mpirun started this process, even within a job of a batch system. MPI's other variables are not
// sufficient: `srun --mpi=pmi2` sets some of them too, and so do users, for libraries that read them.
bool StartedByMpirun(const EnvironmentLookup& environment) {
  return Variable(environment, "OMPI_COMM_WORLD_LOCAL_SIZE").has_value();
}

}  // namespace

absl::StatusOr<ClusterEnvironment> DetectCluster(const EnvironmentLookup& environment,
                                                 const std::optional<PortRange>& ports, const std::string& full_name,
                                                 const FileLookup& read_file) {
  const bool by_mpirun = StartedByMpirun(environment);
  DDPRUN_ASSIGN_OR_RETURN(auto slurm, DetectSlurm(environment, ports));
  if (slurm.has_value()) {
    ClusterEnvironment result = *std::move(slurm);
    if (result.obstacle.empty() && by_mpirun) {
      result.obstacle =
          absl::StrCat("mpirun started this within ", result.description,
                       ", in its own step that omits nodes: use srun with one task per node instead of mpirun, "
                       "as in srun --ntasks=N --ntasks-per-node=1 ddprun ...");
    }
    return result;
  }
  DDPRUN_ASSIGN_OR_RETURN(auto kubernetes, DetectKubernetes(environment, full_name));
  if (kubernetes.has_value()) return *std::move(kubernetes);
  if (!by_mpirun) {
    DDPRUN_ASSIGN_OR_RETURN(const auto variables, WithJsonVariables(environment, read_file));
    const System* const platform = Find(variables, Kind::kPlatform);
    if (platform != nullptr) return Reader(variables, read_file, ports, *platform).Read();
  }
  const System* const mpi = Find(environment, Kind::kMpi);
  const System* const batch = Find(environment, Kind::kBatch);
  absl::StatusOr<ClusterEnvironment> result = ClusterEnvironment();
  if (mpi != nullptr) result = Reader(environment, read_file, ports, *mpi).Read();
  if (!result.ok() || batch == nullptr) return result;
  Reader reader(environment, read_file, ports, *batch);
  absl::StatusOr<ClusterEnvironment> job = reader.Read();
  if (!job.ok() || mpi == nullptr) return job;
  reader.AddFirstHost(*result);
  return result;
}

}  // namespace ddprun::launcher
