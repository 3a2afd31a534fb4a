#ifndef DDPRUN_LAUNCHER_CONFIG_OPTIONS_H_
#define DDPRUN_LAUNCHER_CONFIG_OPTIONS_H_

#include <signal.h>

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "launcher/config/cpu_binding.h"
#include "launcher/config/endpoint_flag.h"
#include "launcher/config/line_prefix.h"
#include "launcher/config/node_count.h"
#include "launcher/config/port_range.h"
#include "launcher/config/rdzv_conf.h"
#include "launcher/config/std_streams.h"
#include "rendezvous/core/credentials.h"
#include "rendezvous/core/messages.h"

namespace ddprun::launcher {

inline constexpr int kDefaultRdzvPort = 29400;    // of --rdzv-endpoint
inline constexpr int kDefaultMasterPort = 29500;  // of --master-port

// --progress: auto is on where standard error is a terminal.
enum class ProgressMode { kAuto, kOn, kOff };

// The command line and the PET_ variables, each value checked by itself. What they mean together is
// launch_config.h's part.
struct Options {
  // The job.
  NodeCount nnodes;
  ProcessCount nproc_per_node;
  int max_restarts = 0;
  absl::Duration restart_window;   // of max_restarts; zero: the job's life
  absl::Duration restart_backoff;  // before the first restart of a series; zero: none
  int max_failures_at_step = rendezvous::JobSettings().max_failures_at_step;  // 0: no limit
  absl::Duration node_cooldown = rendezvous::JobSettings().node_cooldown;     // zero: none
  std::string role = "default";

  // How the nodes find each other.
  bool standalone = false;
  std::string rdzv_backend = "static";  // "static" or "c10d": both mean ddprun's own rendezvous
  std::optional<Endpoint> rdzv_endpoint;
  std::vector<Endpoint> more_rdzv_endpoints;  // the other ones of several rendezvousd
  std::optional<std::string> rdzv_id;
  RdzvConf rdzv_conf;
  std::optional<int32_t> node_rank;
  std::optional<std::string> master_addr;
  std::optional<int> master_port;
  std::optional<std::string> local_addr;
  std::optional<PortRange> port_range;
  rendezvous::Credentials credentials;  // the token itself is never a flag: every user of the host sees those

  // The workers.
  bool no_python = false;
  bool module = false;
  CpuBinding cpu_binding = CpuBinding::kNone;
  bool virtual_local_rank = false;  // each worker sees only its own GPU, as cuda:0
  std::string preload;              // MODULE,... to import before forking workers; "auto": the script's; empty: none
  std::vector<std::string> script;  // the program and its arguments, as given; at least one unless show_config

  // Their output. An empty log_dir: none was given; "/dev/null": no files, error files neither.
  std::string log_dir;
  StreamChoice redirects;
  StreamChoice tee;
  std::set<int32_t> local_ranks_filter;  // whose output the terminal shows; empty: that of all
  std::string line_prefix = kDefaultLinePrefix;
  ProgressMode progress = ProgressMode::kAuto;
  std::vector<std::string> stdout_filters;  // of --tee's lines, those to copy to a file of their own; empty: none
  std::vector<std::string> stderr_filters;

  // Watching and stopping.
  absl::Duration monitor_interval = absl::Milliseconds(100);  // torchrun's; ddprun is told and needs not ask
  std::optional<absl::Duration> shutdown_timeout;             // from SIGTERM to SIGKILL; zero: SIGKILL at once
  std::optional<absl::Duration> hang_timeout;  // of each phase of a worker; zero: hangs are not looked for
  bool restart_on_hang = false;                // a hung worker counts as failed
  bool keep_orphans = false;                   // leave alone what workers started in its own session
  std::vector<int> signals_to_handle = {SIGTERM, SIGINT, SIGHUP, SIGQUIT};

  std::vector<std::string> without_effect;  // a line for each flag that was given and has none

  // Print what would be done, and do nothing.
  bool show_config = false;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CONFIG_OPTIONS_H_
