#ifndef DDPRUN_LAUNCHER_HOSTS_HOSTS_PLAN_H_
#define DDPRUN_LAUNCHER_HOSTS_HOSTS_PLAN_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "launcher/config/flag_value.h"
#include "launcher/config/host_spec.h"
#include "launcher/config/launch_config.h"
#include "launcher/config/parse_options.h"
#include "proto/hosts.pb.h"

// PURE. The command line of `ddprun --hosts` as a task.
namespace ddprun::launcher {

// The task of `ddprun --hosts`.
struct HostsPlan {
  std::vector<HostSpec> hosts;
  std::vector<std::string> folders;         // folder of the job on each host: Prepare.job
  int min_nodes = 1;                        // the job can't run with fewer hosts
  hosts::v1::HostCommand::Prepare prepare;  // the same for all hosts, but for the folder
  std::vector<std::string> flags;           // flags of the launcher on each host
  std::vector<std::string> script;  // script with its arguments; empty: the job runs already and is to be followed
  bool has_endpoint = false;        // `flags` name the rendezvous server
  bool has_node_count = false;      // `flags` have --nnodes
  std::optional<PortRange> ports;
  std::string job_id;
  std::string job_folder;  // name of the folder of the job that has `folders`
  bool detach = false;
  bool may_restart = false;                          // a host that has lost its launcher may get another one
  absl::TimeZone time_zone;                          // the user's
  std::string token;                                 // credential of the rendezvous server
  std::string token_file;                            // file with it, for ddprunctl, if the job is detached
  absl::Duration stop_patience = absl::Seconds(45);  // until the rest of a job that has failed is stopped

  bool follows() const { return script.empty(); }
};

// Facts of this host that a plan uses.
struct HostsInput {
  std::vector<HostSpec> hosts;
  std::string folder;                    // working folder
  std::vector<std::string> environment;  // "NAME=VALUE" each
  std::string python;                    // interpreter of this host; empty: the workers are programs
  absl::TimeZone time_zone;
  std::string random_job_id, random_token, random_start;
};

// The plan of a command line with --hosts. `config` is that of a job of one node with the same flags. InvalidArgument:
// one line.
absl::StatusOr<HostsPlan> PlanHosts(const ParsedOptions& parsed, const LaunchConfig& config, HostsInput input);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_HOSTS_HOSTS_PLAN_H_
