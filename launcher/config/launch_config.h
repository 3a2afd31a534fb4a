#ifndef DDPRUN_LAUNCHER_CONFIG_LAUNCH_CONFIG_H_
#define DDPRUN_LAUNCHER_CONFIG_LAUNCH_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/endpoint.h"
#include "launcher/config/cluster_environment.h"
#include "launcher/config/cpu_binding.h"
#include "launcher/config/flag_value.h"
#include "launcher/config/options.h"
#include "launcher/config/visible_devices.h"
#include "launcher/config/worker_command.h"
#include "rendezvous/core/credentials.h"
#include "rendezvous/core/messages.h"

namespace ddprun::launcher {

// Properties of this node that Resolve needs.
struct HostFacts {
  int cpus = 1;  // available to the launcher
  DeviceFacts devices;
  std::string random_id;  // fresh; used as the job id where none is needed
  PythonFacts python;
  absl::StatusOr<CpuTopology> topology = CpuTopology();  // used by --numa-binding; Resolve adds the devices
  ScriptFile script;                                     // the file named by the command line's first word
};

// Where the job's rendezvous server runs.
enum class ServerPlace {
  kInProcess,    // this process, without a port; a job of one node
  kHere,         // this launcher must host it at the endpoint
  kHereIfLocal,  // this launcher hosts it if the endpoint is on this host and its port is free, else connects
  kElsewhere,    // this launcher only connects
};

// The launcher's configuration: the options and the cluster environment as they are, and what follows from both.
struct LaunchConfig {
  Options options;             // completed by MergeEnvironment
  ClusterEnvironment cluster;  // result of MergeEnvironment

  // Job.
  std::string job_id;
  rendezvous::JobSettings settings = rendezvous::DefaultSettings();
  int slots = 1;  // workers on this node

  // Rendezvous.
  ServerPlace server_place = ServerPlace::kInProcess;
  Endpoint endpoint;                     // unused if kInProcess
  bool hosted_by_rank_zero = false;      // kElsewhere because this node has another rank
  std::vector<Endpoint> more_endpoints;  // further servers, of which one leads; implies kElsewhere
  std::optional<int32_t> node_rank;      // requested group rank
  std::string store_host;                // MASTER_ADDR of a one-node job, if given; empty: loopback
  int store_port = 0;                    // given for MASTER_PORT; 0: any
  rendezvous::Credentials credentials;   // the options', and MUNGE if it may be used

  // Workers.
  WorkerCommand command;
  std::string preload;                        // MODULE,... or "auto"; empty: each worker imports for itself
  std::optional<ForkedServer> forked_server;  // forks the workers; takes precedence over `preload`
  int listener = -1;                          // listener of a hosted server (ServerOptions); -1: it listens by itself
  std::string entrypoint;                     // name of the script, module, program or function, for display
  absl::Duration shutdown_timeout;            // between SIGTERM and SIGKILL
  ChosenDevices accelerators;                 // devices that the workers see
  std::vector<std::string> devices;    // only visible device of each local rank, with LOCAL_RANK=0; empty: unchanged
  std::vector<std::vector<int>> cpus;  // CPUs to bind each local rank to; empty: no binding
  std::vector<int> warning_signals;    // passed on to the workers; the job continues

  // Log lines about given settings that have no effect here, and the like.
  std::vector<std::string> notes;

  // A stopped launcher is replaced by a new one.
  bool is_replaced() const { return cluster.starter == ClusterEnvironment::Starter::kKubernetes; }
};

// Combines the options and the cluster environment. Rules:
//   - --standalone, or at most one node and no endpoint: kInProcess. So is one node with an endpoint of port 0.
//   - with an endpoint: kHereIfLocal, unless is_host of --rdzv-conf decides
//   - else with --master-addr, --master-port or a node rank: the endpoint is MASTER_ADDR:MASTER_PORT, and of the nodes
//     with a rank only rank 0 may host the server
//   - else several nodes are an error, as they have no endpoint
//   - job id: as given; else "none" for several nodes as in torchrun, a random one for one node
//   - shutdown_timeout: as given; else 30 s, but under a batch system short enough to leave the launcher a tenth of the
//     system's time until SIGKILL to end, and at least a second (half of less than two)
//   - SIGUSR1 and SIGUSR2 are warnings unless they stop the job
//   - a script that is a program which Python can't run (worker_command.h), or that is not here while PATH has such a
//     program, is run as with --no-python
//   - --preload with modules has no effect on programs, which is noted
//   - --virtual-local-rank: the workers' devices are the entries of the list in effect (visible_devices.h), else 0, 1,
//     ...
// `cluster` is the result of MergeEnvironment. InvalidArgument: one line that says what to change.
absl::StatusOr<LaunchConfig> Resolve(const Options& options, const HostFacts& facts,
                                     const ClusterEnvironment& cluster = {});

// InvalidArgument: the endpoint's port is outside the port range, so no server may be hosted there.
absl::Status CheckHostedPort(const LaunchConfig& config);

// Formats the endpoints as given: "a:29400,b:29400".
std::string ServersText(const LaunchConfig& config);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CONFIG_LAUNCH_CONFIG_H_
