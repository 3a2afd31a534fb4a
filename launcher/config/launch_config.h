#ifndef DDPRUN_LAUNCHER_CONFIG_LAUNCH_CONFIG_H_
#define DDPRUN_LAUNCHER_CONFIG_LAUNCH_CONFIG_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "launcher/config/cluster_environment.h"
#include "launcher/config/cpu_binding.h"
#include "launcher/config/endpoint_flag.h"
#include "launcher/config/options.h"
#include "launcher/config/port_range.h"
#include "launcher/config/python_choice.h"
#include "launcher/config/script_file.h"
#include "launcher/config/std_streams.h"
#include "rendezvous/core/credentials.h"
#include "rendezvous/core/messages.h"

namespace ddprun::launcher {

// What Resolve has to know of this node.
struct HostFacts {
  int cpus = 1;  // that the launcher may use
  int gpus = 0;
  std::string random_id;  // a fresh one: becomes the job id where none is needed
  PythonFacts python;
  absl::StatusOr<CpuTopology> topology = CpuTopology();  // for --numa-binding
  std::optional<std::string> visible_devices;            // $CUDA_VISIBLE_DEVICES
  ScriptFile script;                                     // what the first word of the command line names
};

// Where the rendezvous server of the job is.
enum class ServerPlace {
  kInProcess,    // a job of one node: in this process, no port
  kHere,         // this launcher hosts it at the endpoint, or else can't run
  kHereIfLocal,  // this launcher hosts it if the endpoint's host is this one and the port is free, else it connects
  kElsewhere,    // this launcher only connects
};

// A worker's command line.
struct WorkerCommand {
  std::vector<std::string> programs;   // in order of preference: the first that exists (in PATH if it has no '/')
  std::vector<std::string> arguments;  // without the program's own name
  std::string script;                  // a Python file that has to exist; empty: none is named
  bool python = false;                 // `programs` are interpreters that run a script or a module
  size_t script_argument = 0;          // then: of `arguments`, the script's or module's name
};

// "2" or "1:4".
std::string NnodesText(const NodeCount& nnodes);

// What is done about workers that report their progress and hang (progress_watch.h).
struct HangPolicy {
  bool watch = true;
  absl::Duration fixed_limit = absl::ZeroDuration();  // zero: limits are learned
  bool restart = false;                               // a hung worker is killed and counts as failed
};

// What the launcher is to do: options with everything implied made explicit.
struct LaunchConfig {
  // The job.
  std::string job_id;
  rendezvous::JobSettings settings;
  int slots = 1;  // workers of this node
  std::string role;

  // The rendezvous.
  ServerPlace server_place = ServerPlace::kInProcess;
  Endpoint endpoint;                                // of no meaning if kInProcess
  std::vector<Endpoint> more_endpoints;             // of the same server as it is one of several; then kElsewhere
  std::optional<int32_t> node_rank;                 // requested group rank
  std::string local_addr;                           // empty: to be found out
  std::string store_host;                           // of a one-node job, as given for MASTER_ADDR; empty: loopback
  int store_port = 0;                               // given for MASTER_PORT; 0: any
  rendezvous::Credentials credentials;              // for the server, and of it where this launcher hosts it
  std::optional<absl::Duration> reconnect_timeout;  // for which to look for a server that is lost (server_line.h)
  std::optional<PortRange> port_range;              // of every port that is listened on; absent: any
  std::string host;                                 // this node's name; empty: the system's
  std::string topology;                             // of Join; empty: not known
  std::vector<std::string> expected_hosts;          // names of the nodes that are to come; empty: not known
  bool endpoint_appears_late = false;               // the endpoint's name may be unknown at first: try again

  // What comes at the end of the job's time; absent if no batch system started it.
  std::optional<BatchSystem> batch;
  bool replaced = false;  // if this launcher is stopped, another one is started in its place (Kubernetes)

  // The workers.
  WorkerCommand command;
  bool runs_python = false;  // the command is an interpreter's
  std::string preload;       // what to load before workers are forked, see Options; empty: each loads for itself
  std::string entrypoint;    // the script's, module's or program's name, for people
  absl::Duration shutdown_timeout;
  HangPolicy hang;
  bool keep_orphans = false;           // what workers left in a session of its own is not killed
  std::vector<std::string> devices;    // by local rank: CUDA_VISIBLE_DEVICES, with LOCAL_RANK=0; empty: as inherited
  std::vector<std::vector<int>> cpus;  // by local rank: to which the worker is bound; empty: to none
  std::vector<int> signals_to_handle;  // they stop the job
  std::vector<int> warning_signals;    // the workers are to know of them, the job goes on

  // Their output.
  std::string log_dir;    // empty: none given. Files asked for by redirects then need a fresh directory.
  bool no_files = false;  // --log-dir=/dev/null: no files and no error files
  ProgressMode progress = ProgressMode::kAuto;
  StreamChoice redirects;  // to files only
  StreamChoice tee;        // to files (if there is a log_dir) and, with a prefix, to the launcher's own streams
  std::set<int32_t> local_ranks_filter;     // whose output the launcher's own streams show; empty: that of all
  std::string line_prefix;                  // before macros are expanded (line_prefix.h)
  std::vector<std::string> stdout_filters;  // lines of `tee` that contain one go to a file of their own as well
  std::vector<std::string> stderr_filters;
  bool has_line_filters() const { return !stdout_filters.empty() || !stderr_filters.empty(); }

  // One line each for the log: given, but without effect here.
  std::vector<std::string> notes;
};

// Puts the options together. Rules:
//   - --standalone, or at most one node and no endpoint: kInProcess. So is an endpoint with port 0 for one node.
//   - an endpoint: kHereIfLocal, or what is_host of --rdzv-conf says
//   - else --master-addr, --master-port or a node rank: the endpoint is MASTER_ADDR:MASTER_PORT, and of the nodes
//     with a rank only rank 0 may host it
//   - else several nodes have nowhere to meet, which is an error
//   - job id: as given; else "none" for several nodes as in torchrun, a random one for one
//   - shutdown_timeout: as given; else 30 s, but under a batch system not more than leaves the launcher a tenth of the
//     time, and at least a second (half of less than two), to end before that system's SIGKILL
//   - SIGUSR1 and SIGUSR2 are warnings unless they are to stop the job
//   - a script that Python can't run, being a program (script_file.h), is run as if --no-python were given
//   - --preload with modules is for Python workers: it has no effect on programs, which is noted
//   - --virtual-local-rank: the workers' devices are the entries of $CUDA_VISIBLE_DEVICES, else 0, 1, ...
// `cluster` is what merge_environment.h left of them.
// InvalidArgument: one line that says what to change.
absl::StatusOr<LaunchConfig> Resolve(const Options& options, const HostFacts& facts,
                                     const ClusterEnvironment& cluster = {});

// InvalidArgument: the endpoint's port is outside of the port range, so no server may be hosted there.
absl::Status CheckHostedPort(const LaunchConfig& config);

// The endpoints as they are given: "a:29400,b:29400".
std::string ServersText(const LaunchConfig& config);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CONFIG_LAUNCH_CONFIG_H_
