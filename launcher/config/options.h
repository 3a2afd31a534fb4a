#ifndef DDPRUN_LAUNCHER_CONFIG_OPTIONS_H_
#define DDPRUN_LAUNCHER_CONFIG_OPTIONS_H_

#include <signal.h>

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/endpoint.h"
#include "launcher/config/cpu_binding.h"
#include "launcher/config/line_prefix.h"
#include "launcher/config/node_count.h"
#include "launcher/config/port_range.h"
#include "launcher/config/rdzv_conf.h"
#include "launcher/config/std_streams.h"
#include "rendezvous/core/credentials.h"
#include "rendezvous/core/messages.h"

namespace ddprun::launcher {

inline constexpr int kDefaultRdzvPort = 29400;    // for --rdzv-endpoint
inline constexpr int kDefaultMasterPort = 29500;  // for --master-port

// --progress; auto shows progress if standard error is a terminal.
enum class ProgressMode { kAuto, kOn, kOff };

// Values of the command line and the PET_ variables, each checked by itself. launch_config.h checks and combines them.
struct Options {
  // Job.
  NodeCount nnodes;
  ProcessCount nproc_per_node;
  int max_restarts = 0;
  absl::Duration restart_window;   // window of max_restarts; zero: the job's life
  absl::Duration restart_backoff;  // before the first restart of a series; zero: none
  int max_failures_at_step = rendezvous::JobSettings().max_failures_at_step;  // 0: no limit
  absl::Duration node_cooldown = rendezvous::JobSettings().node_cooldown;     // zero: none
  std::string role = "default";

  // Rendezvous.
  bool standalone = false;
  std::string rdzv_backend = "static";  // "static" or "c10d": both mean ddprun's own rendezvous
  std::optional<Endpoint> rdzv_endpoint;
  std::vector<Endpoint> more_rdzv_endpoints;  // the other endpoints of several rendezvousd
  std::optional<std::string> rdzv_id;
  RdzvConf rdzv_conf;
  std::optional<int32_t> node_rank;
  std::optional<std::string> master_addr;
  std::optional<int> master_port;
  std::optional<std::string> local_addr;
  std::optional<PortRange> port_range;
  rendezvous::Credentials credentials;  // the token is never a flag, because every user of the host can see flags

  // Workers.
  bool no_python = false;
  bool module = false;
  CpuBinding cpu_binding = CpuBinding::kNone;
  bool virtual_local_rank = false;  // each worker sees only its own GPU, as cuda:0
  std::string preload;              // MODULE,... to import before forking; "auto": the script's imports; empty: none
  std::vector<std::string> script;  // program and arguments, as given; not empty unless show_config

  // Output. log_dir is empty if not given; "/dev/null" disables log and error files.
  std::string log_dir;
  StreamChoice redirects;
  StreamChoice tee;
  std::set<int32_t> local_ranks_filter;  // whose output to show; empty: all
  std::string line_prefix = kDefaultLinePrefix;
  ProgressMode progress = ProgressMode::kAuto;
  std::vector<std::string> stdout_filters;  // copy matching lines of --tee to an extra file; empty: none
  std::vector<std::string> stderr_filters;

  // Watching and stopping.
  absl::Duration monitor_interval = absl::Milliseconds(100);  // torchrun's; ddprun does not poll
  std::optional<absl::Duration> shutdown_timeout;             // between SIGTERM and SIGKILL; zero: SIGKILL at once
  std::optional<absl::Duration> hang_timeout;                 // per phase of a worker; zero: hangs are not detected
  bool restart_on_hang = false;                               // a hung worker counts as failed
  bool keep_orphans = false;                                  // do not kill processes in sessions of their own
  std::vector<int> signals_to_handle = {SIGTERM, SIGINT, SIGHUP, SIGQUIT};

  std::vector<std::string> without_effect;  // a line for each given flag without effect

  // Only print the resulting configuration.
  bool show_config = false;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CONFIG_OPTIONS_H_
