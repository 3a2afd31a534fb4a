#ifndef DDPRUN_LAUNCHER_HOSTS_HOSTS_PLAN_H_
#define DDPRUN_LAUNCHER_HOSTS_HOSTS_PLAN_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "launcher/config/host_spec.h"
#include "launcher/config/launch_config.h"
#include "launcher/config/parse_options.h"
#include "launcher/config/port_range.h"
#include "proto/hosts.pb.h"

// PURE. The command line of `ddprun --hosts` as a task.
namespace ddprun::launcher {

// Environment variables that every host gets from this one, if they are set here: names, or beginnings of names before
// a '*'. --env adds to them.
inline constexpr const char* kPassedVariables[] = {
    "PATH",
    "LD_LIBRARY_PATH",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "CONDA_DEFAULT_ENV",
    "LANG",
    "LC_*",
    "TZ",
    "PYTHON*",
    "TORCH*",
    "PYTORCH*",
    "NCCL_*",
    "GLOO_*",
    "UCX_*",
    "FI_*",
    "OMP_*",
    "MKL_*",
    "KMP_*",
    "TRITON_*",
    "HF_*",
    "TRANSFORMERS_*",
    "WANDB_*",
    "TOKENIZERS_*",
    "LOGLEVEL",
};

// The task of `ddprun --hosts`.
struct HostsPlan {
  std::vector<HostSpec> hosts;
  int min_nodes = 1;                        // with fewer hosts the job can't run
  hosts::v1::HostCommand::Prepare prepare;  // the same for all hosts
  std::vector<std::string> flags;           // of the launcher on each host
  std::vector<std::string> script;          // with its arguments
  bool has_endpoint = false;                // `flags` name the rendezvous server
  bool has_node_count = false;              // `flags` have --nnodes
  std::optional<PortRange> ports;
  std::string job_id;
  bool detach = false;
  bool may_reconnect = false;                        // the job can do without a host for a while
  std::string session;                               // a random word
  absl::TimeZone time_zone;                          // of the user
  std::string token;                                 // of the rendezvous server
  std::string token_file;                            // with `detach`: which has it, for ddprunctl
  absl::Duration stop_patience = absl::Seconds(45);  // until the rest of a job that has failed is stopped
};

// Facts of this host that a plan uses.
struct HostsInput {
  std::vector<HostSpec> hosts;
  std::string folder;                    // working folder
  std::vector<std::string> environment;  // "NAME=VALUE" each
  std::string python;                    // interpreter of this host; empty: the workers are programs
  absl::TimeZone time_zone;
  std::string random_job_id, random_token, random_session;
};

// The plan of a command line with --hosts. `config` is that of a job of one node with the same flags. InvalidArgument:
// one line.
absl::StatusOr<HostsPlan> PlanHosts(const ParsedOptions& parsed, const LaunchConfig& config, HostsInput input);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_HOSTS_HOSTS_PLAN_H_
