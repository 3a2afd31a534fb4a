#include "launcher/config/launch_config.h"

#include <signal.h>

#include <algorithm>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"
#include "base/text.h"

namespace ddprun::launcher {

namespace {

absl::Status CheckOptions(const Options& options) {
  if (options.standalone && options.nnodes != NodeCount{1, 1}) {
    return absl::InvalidArgumentError(absl::StrCat("--standalone is for one node, but --nnodes=",
                                                   options.nnodes.ToString(), " is given: leave out one of the two"));
  }
  if (!options.has_hosts() && (options.detach || !options.passed_variables.empty())) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.detach ? "--detach" : "--env", " is for --hosts, which is not given"));
  }
  return absl::OkStatus();
}

// Sets the devices that the workers see, and the number of workers.
absl::Status SetSlots(const HostFacts& facts, LaunchConfig* config) {
  using Kind = ProcessCount::Kind;
  const Options& options = config->options;
  const ProcessCount& count = options.nproc_per_node;
  const int cpus = std::clamp(facts.cpus, 1, kMaxProcesses);
  config->slots = count.kind == Kind::kNumber ? count.number : cpus;
  const bool counted = count.kind == Kind::kDevice || count.kind == Kind::kAuto;
  const std::string flag = absl::StrCat("--nproc-per-node=", count.kind == Kind::kDevice ? count.device : "auto", ": ");
  absl::StatusOr<ChosenDevices> chosen = ChooseDevices(facts.devices, count.device, options.virtual_local_rank);
  if (!chosen.ok()) {
    const bool binds = options.cpu_binding != CpuBinding::kNone;
    config->accelerators = {.source = std::string(chosen.status().message()), .summary = "unknown"};
    if (!counted && !binds && !options.virtual_local_rank) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(counted                      ? flag
                                                   : options.virtual_local_rank ? "--virtual-local-rank: "
                                                                                : "--numa-binding: ",
                                                   chosen.status().message()));
  }
  config->accelerators = *std::move(chosen);
  const ChosenDevices& devices = config->accelerators;
  if (!counted) return absl::OkStatus();
  if (!devices.visible.empty()) {
    config->slots = std::min(static_cast<int>(devices.visible.size()), kMaxProcesses);
    if (!devices.note.empty()) config->notes.push_back(absl::StrCat(flag, devices.note));
  } else if (count.kind == Kind::kDevice) {
    return absl::InvalidArgumentError(absl::StrCat(flag, devices.text, ": give a number, or cpu"));
  } else {
    config->notes.push_back(absl::StrCat(flag, devices.text, ": ", Counted(cpus, "worker"), ", one for each CPU"));
  }
  return absl::OkStatus();
}

// --node-rank, else `rank` of --rdzv-conf.
std::optional<int32_t> RequestedRank(const Options& options) {
  return options.node_rank ? options.node_rank : options.rdzv_conf.rank;
}

absl::Status SetNodeRank(LaunchConfig* config) {
  const Options& options = config->options;
  config->node_rank = RequestedRank(options);
  if (config->node_rank && *config->node_rank >= options.nnodes.max) {
    return absl::InvalidArgumentError(absl::StrCat("--node-rank=", *config->node_rank,
                                                   " is too large for --nnodes=", options.nnodes.ToString(),
                                                   ": node ranks are 0 to ", options.nnodes.max - 1));
  }
  return absl::OkStatus();
}

// Rank 0 hosts the server; without ranks, the launcher on the endpoint's host does.
void SetStaticEndpoint(LaunchConfig* config) {
  const Options& options = config->options;
  config->endpoint =
      Endpoint{options.master_addr.value_or("127.0.0.1"), options.master_port.value_or(kDefaultMasterPort)};
  config->hosted_by_rank_zero = RequestedRank(options).value_or(0) != 0;
  config->server_place = config->hosted_by_rank_zero ? ServerPlace::kElsewhere : ServerPlace::kHereIfLocal;
  if (!options.master_addr) {
    config->notes.push_back(absl::StrCat("no --master-addr or --rdzv-endpoint given: taking ",
                                         config->endpoint.ToString(), ", so all nodes must be on this host"));
  }
}

// Sets the address of the workers' store. In a job of several nodes with MASTER_ADDR as the endpoint, no flag gives it.
absl::Status SetStore(LaunchConfig* config) {
  const Options& options = config->options;
  const bool alone = config->server_place == ServerPlace::kInProcess;
  if (alone) config->store_host = options.master_addr.value_or("");
  if (!alone && options.master_addr) {
    config->notes.push_back("--master-addr has no effect: --rdzv-endpoint is given");
  }
  const int port = options.master_port.value_or(0);
  if (!alone && port == config->endpoint.port) return absl::OkStatus();  // it is the server's port
  if (port != 0 && options.port_range && !options.port_range->Has(port)) {
    return absl::InvalidArgumentError(absl::StrCat("--master-port=", port, " is outside of --port-range=",
                                                   options.port_range->ToString(), ": give a port of the range"));
  }
  config->store_port = port;
  return absl::OkStatus();
}

absl::Status SetRendezvous(LaunchConfig* config) {
  const Options& options = config->options;
  const bool one_node = options.nnodes.max == 1;
  const bool any_port = options.rdzv_endpoint && options.rdzv_endpoint->port == 0;
  if (any_port && !one_node && !options.standalone) {
    return absl::InvalidArgumentError(absl::StrCat("--rdzv-endpoint=", options.rdzv_endpoint->ToString(),
                                                   " with --nnodes=", options.nnodes.ToString(),
                                                   ": the other nodes cannot know port 0; give a port number"));
  }
  if (options.standalone || (one_node && (!options.rdzv_endpoint || any_port))) {
    config->server_place = ServerPlace::kInProcess;
    if (options.rdzv_endpoint && !any_port) {
      config->notes.push_back("--rdzv-endpoint has no effect: --standalone is given");
    }
    return SetStore(config);
  }
  if (options.rdzv_endpoint) {
    config->endpoint = *options.rdzv_endpoint;
    config->more_endpoints = options.more_rdzv_endpoints;
    config->server_place = config->more_endpoints.empty() ? ServerPlace::kHereIfLocal : ServerPlace::kElsewhere;
    DDPRUN_RETURN_IF_ERROR(SetStore(config));
  } else if (options.master_port == 0) {
    return absl::InvalidArgumentError(absl::StrCat("--master-port=0 with --nnodes=", options.nnodes.ToString(),
                                                   ": the other nodes cannot know port 0; give a port number"));
  } else if (options.master_addr || options.master_port || RequestedRank(options)) {
    SetStaticEndpoint(config);
  } else {
    return absl::InvalidArgumentError(absl::StrCat(
        "--nnodes=", options.nnodes.ToString(),
        " needs --rdzv-endpoint=HOST[:PORT] of one node that all can reach (without it each node would start a separate"
        " job)"));
  }
  if (!config->more_endpoints.empty()) {
    if (!options.rdzv_conf.is_host.value_or(false)) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "--rdzv-conf=is_host=1 with several endpoints: a launcher can't be one of several servers; give one endpoint");
  }
  if (options.rdzv_conf.is_host) {
    config->hosted_by_rank_zero = false;
    config->server_place = *options.rdzv_conf.is_host ? ServerPlace::kHere : ServerPlace::kElsewhere;
  }
  if (config->server_place == ServerPlace::kHere) return CheckHostedPort(*config);
  return absl::OkStatus();
}

// If there are several servers, one takes over when the leader is lost: after 3.3 to 4.1 s with a --lease-ttl of 3 s,
// later if etcd has to elect its own leader first. Workers run without a server for 2/3 of this timeout, so they
// survive the takeover.
absl::Duration DefaultHeartbeatTimeout(const LaunchConfig& config) {
  return config.more_endpoints.empty() ? absl::Seconds(3) : absl::Seconds(10);
}

void SetJob(const HostFacts& facts, LaunchConfig* config) {
  const Options& options = config->options;
  const bool one_node = options.nnodes.max == 1;
  config->job_id = options.rdzv_id.value_or(one_node ? facts.random_id : "none");
  config->settings = options.rdzv_conf.job;
  config->settings.set_min_nodes(options.nnodes.min);
  config->settings.set_max_nodes(options.nnodes.max);
  config->settings.set_max_restarts(options.max_restarts);
  *config->settings.mutable_heartbeat_timeout() =
      FromDuration(options.rdzv_conf.heartbeat_timeout.value_or(DefaultHeartbeatTimeout(*config)));
}

// True for "ddprun python train.py" and "ddprun env A=1 ./train": there is no such script, but such a program.
bool IsProgramInPath(const Options& options, const HostFacts& facts) {
  return !options.module && !options.no_python && !facts.script.in_path.empty() &&
         options.script.front() != kStandardInput && !absl::EndsWith(options.script.front(), ".py");
}

absl::StatusOr<WorkerCommand> MakeCommand(const Options& options, const HostFacts& facts) {
  WorkerCommand command;
  if (options.script.empty()) return command;
  const std::string& script = options.script.front();
  const bool in_path = IsProgramInPath(options, facts);
  if (options.no_python || in_path || (!options.module && IsProgram(script, facts.script))) {
    // Like Python, look for the script in the current directory rather than in PATH, unless it is not there.
    const bool here = !options.no_python && !in_path && script.find('/') == std::string::npos;
    command.programs = {here ? absl::StrCat("./", script) : script};
    command.arguments.assign(options.script.begin() + 1, options.script.end());
    return command;
  }
  DDPRUN_ASSIGN_OR_RETURN(PythonChoice python, ChoosePython(facts.python));
  command.python = true;
  command.programs = std::move(python.programs);
  command.arguments = std::move(python.arguments);
  command.arguments.push_back("-u");  // unbuffered, to keep the last lines before a crash
  if (options.module) {
    command.arguments.push_back("-m");
  } else if (script != kStandardInput) {
    command.script = script;
  }
  command.script_argument = command.arguments.size();
  command.arguments.insert(command.arguments.end(), options.script.begin(), options.script.end());
  return command;
}

// REQUIRES: `config->command` is set.
void SetPreload(LaunchConfig* config) {
  const Options& options = config->options;
  if (options.preload.empty() || options.preload == "none") return;
  const bool is_python = options.module || !config->command.script.empty();
  if (is_python || options.preload == "auto") {
    config->preload = options.preload;
  } else if (!options.script.empty()) {
    config->notes.push_back("--preload has no effect: modules can be preloaded only for Python workers");
  }
}

absl::Status SetDevices(LaunchConfig* config) {
  if (!config->options.virtual_local_rank) return absl::OkStatus();
  const ChosenDevices& seen = config->accelerators;
  const int visible = static_cast<int>(seen.visible.size());
  for (int i = 0; i < config->slots && !seen.entries; ++i) {
    config->devices.push_back(absl::StrCat(i < visible ? seen.visible[i].index : i));
  }
  if (seen.entries) config->devices = *seen.entries;
  const int devices = static_cast<int>(config->devices.size());
  if (devices >= config->slots) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--virtual-local-rank: ", seen.source, " has ",
                                                 Counted(devices, "device"), " for ", config->slots,
                                                 " workers: lower --nproc-per-node, or make more devices visible"));
}

// Adds the NUMA nodes of the devices to the topology. A host with one node needs to know no location.
absl::StatusOr<CpuTopology> WithDevices(CpuTopology topology, const ChosenDevices& devices) {
  std::set<int> nodes;
  for (const auto& [unused, cpu] : topology.cpus) nodes.insert(cpu.node);
  for (const Device& device : devices.visible) {
    if (!device.node && nodes.size() > 1) {
      return absl::FailedPreconditionError(absl::StrCat("the NUMA node of device ",
                                                        device.name.empty() ? absl::StrCat(device.index) : device.name,
                                                        " (", devices.summary, ") is not known: leave the flag out"));
    }
    topology.gpu_nodes.push_back(device.node.value_or(nodes.empty() ? 0 : *nodes.begin()));
  }
  return topology;
}

absl::Status SetCpus(const HostFacts& facts, LaunchConfig* config) {
  const CpuBinding binding = config->options.cpu_binding;
  if (binding == CpuBinding::kNone) return absl::OkStatus();
  absl::Status status = facts.topology.status();
  if (status.ok()) {
    const absl::StatusOr<CpuTopology> topology = WithDevices(*facts.topology, config->accelerators);
    absl::StatusOr<std::vector<std::vector<int>>> cpus =
        topology.ok() ? BindWorkers(binding, *topology, config->slots) : topology.status();
    if (cpus.ok()) {
      config->cpus = *std::move(cpus);
      return absl::OkStatus();
    }
    status = cpus.status();
  }
  return absl::InvalidArgumentError(absl::StrCat("--numa-binding: ", status.message()));
}

// Notes output flags without effect.
void CheckOutput(LaunchConfig* config) {
  const OutputSettings& output = config->options.output;
  const int named = std::max(output.redirects.MaxNamedRank(), output.tee.MaxNamedRank());
  if (named >= config->slots) {
    config->notes.push_back(absl::StrCat("--redirects or --tee names local rank ", named, ", but this node has only ",
                                         config->slots, " workers"));
  }
  const RankFilter& shown = output.local_ranks_filter;
  if (!shown.global && !shown.ranks.empty() && *shown.ranks.begin() >= config->slots) {
    config->notes.push_back(absl::StrCat("no output is shown: --local-ranks-filter names no local rank below ",
                                         config->slots, ", the number of workers on this node"));
  }
  if (output.has_line_filters() && (output.no_files || !output.tee.any())) {
    config->notes.push_back(
        absl::StrCat("--duplicate-stdout-filters and --duplicate-stderr-filters have no effect: ",
                     output.no_files ? "--log-dir is /dev/null" : "they copy lines of --tee, which is not given"));
  }
  if (output.no_files && output.redirects.any()) {
    config->notes.push_back("output redirected by --redirects is discarded: --log-dir is /dev/null");
  }
}

void SetStop(LaunchConfig* config) {
  const Options& options = config->options;
  for (const int signal : {SIGUSR1, SIGUSR2}) {
    const std::vector<int>& stop = options.signals_to_handle;
    if (std::find(stop.begin(), stop.end(), signal) == stop.end()) config->warning_signals.push_back(signal);
  }
  config->shutdown_timeout = options.shutdown_timeout.value_or(absl::Seconds(30));
  if (!config->cluster.batch) return;
  const absl::Duration kill_wait = config->cluster.batch->kill_wait;
  if (!options.shutdown_timeout) {
    const absl::Duration margin = std::max(kill_wait / 10, std::min(absl::Seconds(1), kill_wait / 2));
    config->shutdown_timeout = std::min(config->shutdown_timeout, kill_wait - margin);
  } else if (*options.shutdown_timeout > kill_wait) {
    config->notes.push_back(absl::StrCat("--shutdown-timeout=", absl::ToDoubleSeconds(*options.shutdown_timeout),
                                         " is longer than the batch system waits from SIGTERM to SIGKILL (",
                                         absl::FormatDuration(kill_wait), "): workers have only that"));
  }
}

void CheckCpus(const HostFacts& facts, LaunchConfig* config) {
  if (config->cluster.starter == ClusterEnvironment::Starter::kSlurm && facts.cpus < config->slots) {
    config->notes.push_back(absl::StrCat(
        config->slots, " workers share ", Counted(facts.cpus, "CPU"),
        ", all that SLURM lets this task use: give srun itself --cpus-per-task=N (srun does not inherit sbatch's)"));
  }
}

}  // namespace

absl::Status CheckHostedPort(const LaunchConfig& config) {
  const std::optional<PortRange>& range = config.options.port_range;
  if (!range || range->Has(config.endpoint.port)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the rendezvous server would listen at ", config.endpoint.ToString(),
                                                 ", outside of --port-range=", range->ToString(),
                                                 ": give the endpoint a port of the range"));
}

absl::StatusOr<LaunchConfig> Resolve(const Options& options, const HostFacts& facts,
                                     const ClusterEnvironment& cluster) {
  LaunchConfig config{.options = options, .cluster = cluster};
  DDPRUN_RETURN_IF_ERROR(CheckOptions(options));
  DDPRUN_RETURN_IF_ERROR(SetSlots(facts, &config));
  config.notes.insert(config.notes.end(), cluster.notes.begin(), cluster.notes.end());
  CheckCpus(facts, &config);
  DDPRUN_RETURN_IF_ERROR(SetNodeRank(&config));
  DDPRUN_RETURN_IF_ERROR(SetRendezvous(&config));
  SetJob(facts, &config);
  config.credentials = options.credentials;
  config.credentials.munge = cluster.has_munge && !options.credentials.has_token();
  DDPRUN_ASSIGN_OR_RETURN(config.command, MakeCommand(options, facts));
  if (!options.script.empty() && IsProgramInPath(options, facts)) {
    config.notes.push_back(absl::StrCat("no script ", Quoted(options.script.front()), " is here: running the program ",
                                        facts.script.in_path, ", as with --no-python"));
  }
  SetPreload(&config);
  DDPRUN_RETURN_IF_ERROR(SetDevices(&config));
  DDPRUN_RETURN_IF_ERROR(SetCpus(facts, &config));
  if (!options.script.empty()) config.entrypoint = options.script.front();
  SetStop(&config);
  CheckOutput(&config);
  config.notes.insert(config.notes.end(), options.without_effect.begin(), options.without_effect.end());
  return config;
}

std::string ServersText(const LaunchConfig& config) {
  std::string text = config.endpoint.ToString();
  for (const Endpoint& endpoint : config.more_endpoints) absl::StrAppend(&text, ",", endpoint.ToString());
  return text;
}

}  // namespace ddprun::launcher
