#include "launcher/cluster/slurm.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "launcher/cluster/host_list.h"
#include "launcher/cluster/variables.h"
#include "launcher/config/cluster_environment.h"
#include "rendezvous/core/limits.h"

namespace ddprun::launcher {
namespace {

using rendezvous::kMaxNodes;

constexpr int64_t kMaxJob = 0xffffffff;
constexpr int64_t kMaxStep = 0xffffffff;
constexpr int64_t kFirstOwnStep = 0xfffffff0;  // reserved numbers from here on: the batch script, salloc's shell, ...
constexpr int64_t kMaxEndTime = int64_t{1} << 40;
constexpr size_t kMaxSwitchesBytes = rendezvous::kMaxTopologyBytes / 2;

constexpr char kStale[] =
    "the SLURM_STEP_ variables do not match this node and SLURM_NNODES; ignored as inherited from another step";

// Nodes of a step, or of a job without one.
struct Nodes {
  std::vector<std::string> hosts;
  std::string source;  // the variable with their number
};

struct Job {
  uint32_t id = 0;
  std::string name;  // "61", "61 (60_1)" in an array
  int restart = 0;
  std::optional<absl::Time> end_time;
  std::optional<std::string> node;  // this one
  std::optional<int64_t> nnodes;    // SLURM_NNODES: the step's, else the job's
};

struct Step {
  uint32_t id = 0;
  Nodes nodes;
  std::vector<int> tasks;  // per node; empty if unknown
  std::string tasks_source;
};

absl::StatusOr<std::optional<std::vector<std::string>>> HostsVariable(const EnvironmentLookup& environment,
                                                                      const std::string& name) {
  const std::optional<std::string> value = Variable(environment, name);
  if (!value.has_value()) return std::nullopt;
  absl::StatusOr<std::vector<std::string>> hosts = ExpandHostList(*value);
  if (!hosts.ok()) return BadVariable(name, *value, hosts.status().message());
  for (const std::string& host : *hosts) {
    if (const absl::StatusOr<std::string> checked = ParseHost(host); !checked.ok()) {
      return BadVariable(name, *value, checked.status().message());
    }
  }
  return std::optional(*std::move(hosts));
}

absl::StatusOr<Job> ReadJob(const EnvironmentLookup& environment) {
  Job job;
  DDPRUN_ASSIGN_OR_RETURN(const auto id, NumberVariable(environment, "SLURM_JOB_ID", 1, kMaxJob));
  job.id = static_cast<uint32_t>(id.value());
  job.name = absl::StrCat(job.id);

  DDPRUN_ASSIGN_OR_RETURN(const auto array, NumberVariable(environment, "SLURM_ARRAY_JOB_ID", 1, kMaxJob));
  DDPRUN_ASSIGN_OR_RETURN(const auto element, NumberVariable(environment, "SLURM_ARRAY_TASK_ID", 0, kMaxJob));
  if (array.has_value() && element.has_value()) absl::StrAppend(&job.name, " (", *array, "_", *element, ")");

  DDPRUN_ASSIGN_OR_RETURN(const auto restart,
                          NumberVariable(environment, "SLURM_RESTART_COUNT", 0, rendezvous::kMaxRestarts));
  job.restart = static_cast<int>(restart.value_or(0));
  DDPRUN_ASSIGN_OR_RETURN(const auto end, NumberVariable(environment, "SLURM_JOB_END_TIME", 1, kMaxEndTime));
  if (end.has_value()) job.end_time = absl::FromUnixSeconds(*end);
  DDPRUN_ASSIGN_OR_RETURN(job.nnodes, NumberVariable(environment, "SLURM_NNODES", 1, kMaxNodes));

  job.node = Variable(environment, "SLURMD_NODENAME");
  if (job.node.has_value()) {
    if (const auto checked = ParseHost(*job.node); !checked.ok()) {
      return BadVariable("SLURMD_NODENAME", *job.node, checked.status().message());
    }
  }
  return job;
}

bool Has(const std::vector<std::string>& hosts, const std::string& host) {
  return std::find(hosts.begin(), hosts.end(), host) != hosts.end();
}

// The step's variables, even if they belong to another step than this process. Nullopt: there is none.
absl::StatusOr<std::optional<Step>> ReadStep(const EnvironmentLookup& environment) {
  Step step;
  DDPRUN_ASSIGN_OR_RETURN(const auto id, NumberVariable(environment, "SLURM_STEP_ID", 0, kMaxStep));
  if (!id.has_value() || *id >= kFirstOwnStep) return std::nullopt;
  step.id = static_cast<uint32_t>(*id);

  DDPRUN_ASSIGN_OR_RETURN(auto hosts, HostsVariable(environment, "SLURM_STEP_NODELIST"));
  if (!hosts.has_value()) {
    return BadVariable("SLURM_STEP_ID", absl::StrCat(step.id), "there is a step, but no SLURM_STEP_NODELIST");
  }
  step.nodes.hosts = *std::move(hosts);
  const size_t size = step.nodes.hosts.size();

  DDPRUN_ASSIGN_OR_RETURN(const auto count, NumberVariable(environment, "SLURM_STEP_NUM_NODES", 1, kMaxNodes));
  if (count.has_value() && *count != size) {
    return BadVariable("SLURM_STEP_NUM_NODES", absl::StrCat(*count),
                       absl::StrCat("but SLURM_STEP_NODELIST has ", Counted(size, "node")));
  }
  step.nodes.source = count.has_value()
                          ? Assignment("SLURM_STEP_NUM_NODES", absl::StrCat(*count))
                          : Assignment("SLURM_STEP_NODELIST", *Variable(environment, "SLURM_STEP_NODELIST"));

  const std::optional<std::string> tasks = Variable(environment, "SLURM_STEP_TASKS_PER_NODE");
  if (tasks.has_value()) {
    auto counts = ExpandTaskCounts(*tasks);
    if (!counts.ok())
      return absl::InvalidArgumentError(absl::StrCat("SLURM_STEP_TASKS_PER_NODE: ", counts.status().message()));
    if (counts->size() != size) {
      return BadVariable("SLURM_STEP_TASKS_PER_NODE", *tasks,
                         absl::StrCat("it is for ", Counted(counts->size(), "node"), ", but SLURM_STEP_NODELIST has ",
                                      Counted(size, "node")));
    }
    step.tasks = *std::move(counts);
    step.tasks_source = Assignment("SLURM_STEP_TASKS_PER_NODE", *tasks);
  }
  return std::optional(std::move(step));
}

// True if this process is in the step that the variables describe (see slurm.h).
bool IsIn(const Step& step, const Job& job) {
  if (job.nnodes.has_value() && *job.nnodes != step.nodes.hosts.size()) return false;
  return !job.node.has_value() || Has(step.nodes.hosts, *job.node);
}

// Position of this node in `hosts`.
absl::StatusOr<std::optional<Found<int>>> ReadIndex(const EnvironmentLookup& environment, const Job& job,
                                                    const std::vector<std::string>& hosts) {
  DDPRUN_ASSIGN_OR_RETURN(const auto id, NumberVariable(environment, "SLURM_NODEID", 0, kMaxNodes));
  if (id.has_value() && *id >= hosts.size()) {
    return BadVariable("SLURM_NODEID", absl::StrCat(*id),
                       absl::StrCat("but there are only ", Counted(hosts.size(), "node")));
  }
  if (job.node.has_value()) {
    const auto place = std::find(hosts.begin(), hosts.end(), *job.node);
    return Found<int>{static_cast<int>(place - hosts.begin()), Assignment("SLURMD_NODENAME", *job.node)};
  }
  if (!id.has_value()) return std::nullopt;
  return Found<int>{static_cast<int>(*id), Assignment("SLURM_NODEID", absl::StrCat(*id))};
}

// Address of `host` in SLURM_NODE_ALIASES ("name:address:host,...", an IPv6 address in brackets); else its name.
absl::StatusOr<std::string> AddressOf(const EnvironmentLookup& environment, const std::string& host) {
  const std::optional<std::string> aliases = Variable(environment, "SLURM_NODE_ALIASES");
  if (!aliases.has_value()) return host;
  for (absl::string_view entry : absl::StrSplit(*aliases, ',')) {
    if (!absl::ConsumePrefix(&entry, absl::StrCat(host, ":"))) continue;
    const bool bracketed = absl::StartsWith(entry, "[");
    const size_t end = bracketed ? entry.find(']') + 1 : entry.find(':');  // npos + 1 is 0: no address
    const absl::StatusOr<std::string> address = ParseHost(entry.substr(0, end));
    if (!address.ok()) return BadVariable("SLURM_NODE_ALIASES", *aliases, address.status().message());
    return *address;
  }
  return host;
}

// "s0.s4" for SLURM_TOPOLOGY_ADDR=s0.s4.node7; empty if there are no switches.
absl::StatusOr<std::string> ReadSwitches(const EnvironmentLookup& environment, const Job& job) {
  const std::optional<std::string> address = Variable(environment, "SLURM_TOPOLOGY_ADDR");
  const std::optional<std::string> pattern = Variable(environment, "SLURM_TOPOLOGY_ADDR_PATTERN");
  if (!address.has_value() || !pattern.has_value() || !absl::StrContains(*pattern, '.')) return "";
  if (address->size() > kMaxSwitchesBytes) return BadVariable("SLURM_TOPOLOGY_ADDR", *address, "it is too long");
  // A node's name may contain dots.
  const std::string node = absl::StrCat(".", job.node.value_or(""));
  if (absl::EndsWith(*address, node) && node.size() > 1) return address->substr(0, address->size() - node.size());
  const size_t dot = address->rfind('.');
  if (dot == std::string::npos) {
    return BadVariable("SLURM_TOPOLOGY_ADDR", *address,
                       absl::StrCat("it has one part, but SLURM_TOPOLOGY_ADDR_PATTERN has more"));
  }
  return address->substr(0, dot);
}

// Fills in what is common to all processes on a node of the job.
absl::Status AddNodes(const EnvironmentLookup& environment, const Job& job, const Nodes& nodes,
                      ClusterEnvironment& result) {
  result.hosts = nodes.hosts;
  result.nnodes = Found<int>{static_cast<int>(nodes.hosts.size()), nodes.source};
  DDPRUN_ASSIGN_OR_RETURN(const auto index, ReadIndex(environment, job, nodes.hosts));
  result.node_index = index;
  if (job.node.has_value()) result.host = Found<std::string>{*job.node, Assignment("SLURMD_NODENAME", *job.node)};
  DDPRUN_ASSIGN_OR_RETURN(const std::string switches, ReadSwitches(environment, job));
  if (index.has_value()) {
    const int place = index->value;
    result.topology =
        switches.empty()
            ? Found<std::string>{absl::StrCat(place), index->source}
            : Found<std::string>{absl::StrCat(switches, ".", place),
                                 Assignment("SLURM_TOPOLOGY_ADDR", *Variable(environment, "SLURM_TOPOLOGY_ADDR"))};
  }
  return absl::OkStatus();
}

std::string HowToCall(size_t nnodes) {
  // --ntasks-per-node alone is not enough: srun inherits the number of tasks from sbatch.
  return absl::StrCat("write srun --ntasks=", nnodes, " --ntasks-per-node=1 ddprun ...");
}

// One line if a node has several tasks; else empty.
std::string TasksObstacle(const Step& step) {
  const std::vector<std::string>& hosts = step.nodes.hosts;
  const std::string and_so =
      " (ddprun starts the workers of a node itself, --nproc-per-node of them), or give "
      "--standalone if each task is an independent job";
  const std::set<std::string> distinct(hosts.begin(), hosts.end());
  if (distinct.size() < hosts.size()) {
    return absl::StrCat("SLURM started several tasks on one node, in components of a heterogeneous step: ",
                        HowToCall(distinct.size()), and_so);
  }
  const auto most = std::max_element(step.tasks.begin(), step.tasks.end());
  if (most == step.tasks.end() || *most == 1) return "";
  return absl::StrCat("SLURM started ", *most, " tasks on ", hosts[most - step.tasks.begin()], " (", step.tasks_source,
                      "): ", HowToCall(hosts.size()), and_so);
}

absl::Status AddStep(const EnvironmentLookup& environment, const Job& job, const Step& step,
                     const std::optional<PortRange>& ports, ClusterEnvironment& result) {
  const std::vector<std::string>& hosts = step.nodes.hosts;
  DDPRUN_RETURN_IF_ERROR(AddNodes(environment, job, step.nodes, result));
  result.obstacle = TasksObstacle(step);
  if (hosts.size() > 1) {
    DDPRUN_ASSIGN_OR_RETURN(std::string address, AddressOf(environment, hosts.front()));
    result.endpoint =
        Found<Endpoint>{{std::move(address), DerivedPort(job.id, step.id, job.restart, ports)},
                        absl::StrCat(Assignment("SLURM_STEP_NODELIST", *Variable(environment, "SLURM_STEP_NODELIST")),
                                     ", job ", job.id, ", step ", step.id)};
  }
  result.job_id = step.id == 0
                      ? Found<std::string>{absl::StrCat(job.id), Assignment("SLURM_JOB_ID", absl::StrCat(job.id))}
                      : Found<std::string>{absl::StrCat(job.id, ".", step.id),
                                           absl::StrCat("SLURM_JOB_ID=", job.id, ", SLURM_STEP_ID=", step.id)};
  result.batch->signals_every_process = true;
  result.has_munge = true;
  result.description = absl::StrCat("step ", step.id, " of SLURM job ", job.name);
  return absl::OkStatus();
}

// Handles a batch script, or salloc's shell on a node.
absl::Status AddJobAlone(const EnvironmentLookup& environment, const Job& job, const Nodes& nodes,
                         ClusterEnvironment& result) {
  result.description = absl::StrCat("SLURM job ", job.name, " without a step");
  const std::string here = absl::StrCat("this is not a step of SLURM job ", job.name, " but its script or shell on ",
                                        *job.node, ", one of ");
  DDPRUN_ASSIGN_OR_RETURN(const auto components, NumberVariable(environment, "SLURM_HET_SIZE", 1, kMaxNodes));
  if (components.value_or(1) > 1) {  // SLURM_JOB_NODELIST has only the first component's nodes
    result.obstacle = absl::StrCat(here, "its ", *components, " components: write srun --het-group=0-", *components - 1,
                                   " ddprun ..., with one task on each node");
    return absl::OkStatus();
  }
  if (nodes.hosts.size() > 1) {
    result.obstacle = absl::StrCat(here, "its ", nodes.hosts.size(), " nodes: ", HowToCall(nodes.hosts.size()));
    return absl::OkStatus();
  }
  DDPRUN_RETURN_IF_ERROR(AddNodes(environment, job, nodes, result));
  result.job_id = Found<std::string>{absl::StrCat(job.id), Assignment("SLURM_JOB_ID", absl::StrCat(job.id))};
  return absl::OkStatus();
}

// Result for a machine that is not a node of the job.
ClusterEnvironment Outside(const Job& job, const Nodes& nodes) {
  ClusterEnvironment result;
  result.starter = ClusterEnvironment::Starter::kSlurm;
  result.description = absl::StrCat("a shell of SLURM job ", job.name, ", not on one of its nodes");
  const std::string text =
      absl::StrCat("this machine is not a node of SLURM job ", job.name, " (", Counted(nodes.hosts.size(), "node"),
                   "): to run there, ", HowToCall(nodes.hosts.size()));
  if (nodes.hosts.size() > 1) {
    result.obstacle = text;
  } else {
    result.notes.push_back(text);
  }
  return result;
}

// Returns the number of devices in a list such as "0,1" or "GPU-8b1f,MIG-77aa". As in the drivers, the list ends at the
// first entry that is not a device.
int CountDevices(absl::string_view list) {
  int count = 0;
  for (const absl::string_view device : absl::StrSplit(list, ',')) {
    if (device.empty() || device == "-1" || device == "NoDevFiles") break;
    ++count;
  }
  return count;
}

// GPUs that SLURM gave the step (or, without one, the job) on this node.
absl::StatusOr<std::optional<Found<int>>> GivenGpus(const EnvironmentLookup& environment, bool in_step) {
  auto number = FoundNumber(environment, "SLURM_GPUS_ON_NODE", 0, kMaxGpus);
  if (!number.ok() || number->has_value()) return number;
  const char* const name = in_step ? "SLURM_STEP_GPUS" : "SLURM_JOB_GPUS";
  const std::optional<std::string> list = Variable(environment, name);
  if (!list.has_value()) return std::nullopt;
  return Found<int>{CountDevices(*list), Assignment(name, *list)};
}

// ", from --gpus-per-task", if that can be determined.
std::string BindingOption(const EnvironmentLookup& environment) {
  const std::optional<std::string> bind = Variable(environment, "SLURMD_TRES_BIND");
  const std::optional<std::string> per_task = Variable(environment, "SLURM_TRES_PER_TASK");
  if (Variable(environment, "SLURM_GPUS_PER_TASK").has_value() ||
      (per_task.has_value() && absl::StrContains(*per_task, "gpu")) ||
      (bind.has_value() && absl::StrContains(*bind, "gpu:per_task"))) {
    return ", from --gpus-per-task";
  }
  if (bind.has_value() && absl::StrContains(*bind, "gpu:")) return ", from --gpu-bind";
  return "";
}

// Sets `gpus` and `gpu_binding`, and adds anything unusual to `notes`: the GPUs that SLURM gave the step on this node
// (SLURM_GPUS_ON_NODE, or in versions without it SLURM_STEP_GPUS, in a batch script SLURM_JOB_GPUS), or the subset that
// this task may see (CUDA_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES). No effect if SLURM gave none. InvalidArgument: one
// line with the variable.
absl::Status AddGpus(const EnvironmentLookup& environment, bool in_step, ClusterEnvironment& cluster) {
  DDPRUN_ASSIGN_OR_RETURN(const std::optional<Found<int>> given, GivenGpus(environment, in_step));
  if (!given.has_value() || given->value == 0) return absl::OkStatus();
  const Found<int>& all = *given;
  DDPRUN_ASSIGN_OR_RETURN(const std::optional<Found<int>> visible, VisibleGpus(environment));
  const std::string option = BindingOption(environment);

  if (!visible.has_value() || visible->value >= all.value) {
    cluster.gpus = all;
    cluster.gpu_binding =
        absl::StrCat("SLURM gave this task ", Counted(all.value, "GPU"), " of the node (", all.source, option, ")");
  } else if (visible->value > 0) {
    cluster.gpus = visible;
    cluster.gpu_binding = absl::StrCat("SLURM lets this task see ", visible->value, " of the step's ",
                                       Counted(all.value, "GPU"), " on this node (", visible->source, option, ")");
  } else {
    cluster.notes.push_back(absl::StrCat("SLURM gave ", Counted(all.value, "GPU"), " (", all.source, "), but ",
                                         visible->source, " hides them from this task"));
  }
  return absl::OkStatus();
}

void AddCpuNote(const EnvironmentLookup& environment, ClusterEnvironment& result) {
  const auto cpus = NumberVariable(environment, "SLURM_CPUS_ON_NODE", 1, 1'000'000);
  if (!cpus.ok() || !cpus->has_value() || !result.gpus.has_value() || **cpus >= result.gpus->value) return;
  result.notes.push_back(absl::StrCat("SLURM gives fewer CPUs (SLURM_CPUS_ON_NODE=", **cpus, ") than GPUs (",
                                      result.gpus->source, "): srun --cpus-per-task=N asks for more"));
}

absl::StatusOr<Nodes> ReadJobNodes(const EnvironmentLookup& environment) {
  DDPRUN_ASSIGN_OR_RETURN(auto hosts, HostsVariable(environment, "SLURM_JOB_NODELIST"));
  if (!hosts.has_value()) {
    return absl::InvalidArgumentError("SLURM_JOB_ID is set, but neither SLURM_STEP_NODELIST nor SLURM_JOB_NODELIST");
  }
  return Nodes{*std::move(hosts), Assignment("SLURM_JOB_NODELIST", *Variable(environment, "SLURM_JOB_NODELIST"))};
}

absl::StatusOr<ClusterEnvironment> Detect(const EnvironmentLookup& environment, const std::optional<PortRange>& ports) {
  DDPRUN_ASSIGN_OR_RETURN(const Job job, ReadJob(environment));
  DDPRUN_ASSIGN_OR_RETURN(std::optional<Step> step, ReadStep(environment));

  ClusterEnvironment result;
  result.starter = ClusterEnvironment::Starter::kSlurm;
  result.batch = BatchSystem{.job = absl::StrCat(job.id), .end_time = job.end_time, .restart_count = job.restart};
  const bool stale = step.has_value() && !IsIn(*step, job);
  const bool in_step = step.has_value() && !stale;
  if (in_step) {
    DDPRUN_RETURN_IF_ERROR(AddStep(environment, job, *step, ports, result));
  } else {
    DDPRUN_ASSIGN_OR_RETURN(const Nodes nodes, ReadJobNodes(environment));
    if (!job.node.has_value() || !Has(nodes.hosts, *job.node)) return Outside(job, nodes);
    DDPRUN_RETURN_IF_ERROR(AddJobAlone(environment, job, nodes, result));
  }
  if (stale && !result.obstacle.empty()) absl::StrAppend(&result.obstacle, " (", kStale, ")");
  if (stale && result.obstacle.empty()) result.notes.push_back(kStale);
  DDPRUN_RETURN_IF_ERROR(AddGpus(environment, in_step, result));
  AddCpuNote(environment, result);
  if (result.nnodes.has_value() && result.node_index.has_value()) {
    absl::StrAppend(&result.description, ", node ", result.node_index->value + 1, " of ", result.nnodes->value);
  }
  return result;
}

}  // namespace

absl::StatusOr<std::optional<ClusterEnvironment>> DetectSlurm(const EnvironmentLookup& environment,
                                                              const std::optional<PortRange>& ports) {
  if (!Variable(environment, "SLURM_JOB_ID").has_value()) return std::nullopt;
  absl::StatusOr<ClusterEnvironment> result = Detect(environment, ports);
  if (!result.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(result.status().message(), " (SLURM sets this; unset SLURM_JOB_ID to ignore SLURM)"));
  }
  return std::optional(*std::move(result));
}

}  // namespace ddprun::launcher
