#ifndef DDPRUN_LAUNCHER_CONFIG_OPTIONS_H_
#define DDPRUN_LAUNCHER_CONFIG_OPTIONS_H_

#include <signal.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "base/endpoint.h"
#include "launcher/config/cpu_binding.h"
#include "launcher/config/flag_value.h"
#include "launcher/config/host_spec.h"
#include "launcher/config/output_settings.h"
#include "launcher/config/rdzv_conf.h"
#include "rendezvous/core/credentials.h"

namespace ddprun::launcher {

inline constexpr int kDefaultRdzvPort = 29400;    // default of --rdzv-endpoint
inline constexpr int kDefaultMasterPort = 29500;  // for --master-port

// Time that the command of --on-end may take.
inline constexpr absl::Duration kEndCommandLimit = absl::Seconds(60);

// Values of the command line and the PET_ variables, each checked by itself. launch_config.h checks and combines them.
struct Options {
  // Job.
  NodeCount nnodes;
  ProcessCount nproc_per_node;
  int max_restarts = 0;
  std::string role = "default";

  // Hosts on which this program starts the job over ssh (launcher/hosts); none: it is the launcher of one node.
  std::vector<HostSpec> hosts;
  std::string hosts_file;                     // or the file that names them
  std::vector<std::string> passed_variables;  // "NAME", "NAME*" or "NAME=VALUE"
  bool detach = false;

  bool has_hosts() const { return !hosts.empty() || !hosts_file.empty(); }

  // Rendezvous.
  bool standalone = false;
  std::optional<Endpoint> rdzv_endpoint;
  std::vector<Endpoint> more_rdzv_endpoints;  // the other endpoints of several rendezvousd
  std::optional<std::string> rdzv_id;
  RdzvConf rdzv_conf;  // and the job settings that are no flags of their own
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
  std::string preload;              // MODULE,... to import before forking; "auto": the script's imports; "none"; or ""
  std::vector<std::string> script;  // program and arguments, as given; not empty unless show_config

  OutputSettings output;

  // Watching and stopping.
  std::optional<absl::Duration> shutdown_timeout;  // between SIGTERM and SIGKILL; zero: SIGKILL at once
  HangPolicy hang;
  absl::Duration uninterruptible_timeout;  // how long a worker may be in state D; zero: any time; from the environment
  std::string on_end;                      // shell command that runs once, on one node, when the job ends; empty: none
  std::string result;                      // file for the summary of that end; empty: none
  bool keep_orphans = false;               // do not kill processes in sessions of their own; from the environment only
  std::vector<int> signals_to_handle = {SIGTERM, SIGINT, SIGHUP, SIGQUIT};

  std::vector<std::string> without_effect;  // a line for each given flag without effect

  // Only print the resulting configuration.
  bool show_config = false;
};

// Records, for display, where the value of each flag came from: "--nnodes=2", "PET_NNODES=2", "SLURM_STEP_NUM_NODES=2",
// "default". Flags are named as in the flag table ("nnodes"). Thread-compatible value type.
class Origins {
 public:
  // The value was given by the flag or its variable, and nothing else may change it.
  void Give(const std::string& flag, std::string text) { origins_[flag] = {std::move(text), true}; }
  // The value was taken from another source because the flag was not given.
  void Take(const std::string& flag, std::string text) { origins_[flag] = {std::move(text), false}; }

  bool IsGiven(const std::string& flag) const {
    const auto found = origins_.find(flag);
    return found != origins_.end() && found->second.given;
  }
  std::string Of(const std::string& flag) const {
    const auto found = origins_.find(flag);
    return found == origins_.end() ? "default" : found->second.text;
  }

 private:
  struct Origin {
    std::string text;
    bool given = false;
  };
  std::map<std::string, Origin> origins_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CONFIG_OPTIONS_H_
