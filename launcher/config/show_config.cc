#include "launcher/config/show_config.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "base/text.h"
#include "launcher/config/flag_value.h"
#include "launcher/report/wait_text.h"

namespace ddprun::launcher {
namespace {

constexpr size_t kMaxTextBytes = 300;
constexpr size_t kMaxColumn = 44;  // a longer value shifts only its own origin

struct Line {
  std::string setting;
  std::string value;
  std::string origin;
};

class Table {
 public:
  Table(const LaunchConfig& config, const Origins& origins)
      : config_(config), options_(config.options), cluster_(config.cluster), origins_(origins) {}

  std::vector<Line> Lines(absl::TimeZone zone) {
    AddJob();
    AddServer();
    AddCredentials();
    AddNode();
    AddRdzvConf();
    AddWorkers();
    AddEnd(zone);
    return std::move(lines_);
  }

 private:
  void Add(std::string setting, absl::string_view value, absl::string_view origin) {
    lines_.push_back({std::move(setting), OneLine(value, kMaxTextBytes), OneLine(origin, kMaxTextBytes)});
  }
  void AddFlag(const std::string& flag, absl::string_view value) { Add(flag, value, origins_.Of(flag)); }

  void AddJob() {
    Add("started by", cluster_.description.empty() ? "hand" : cluster_.description, "");
    if (options_.has_hosts()) {
      Add("hosts", "start a launcher on each over ssh; below: of this host", origins_.Of("hosts"));
    }
    AddFlag(options_.standalone ? "standalone" : "nnodes", options_.nnodes.ToString());
    AddFlag("nproc-per-node", absl::StrCat(config_.slots));
    Add("accelerators", config_.accelerators.summary, config_.accelerators.source);
    AddFlag("max-restarts", absl::StrCat(options_.max_restarts));
    AddFlag("role", options_.role);
    const bool random = !options_.rdzv_id && options_.nnodes.max == 1;
    Add("rdzv-id", config_.job_id, random ? "random: a job of one node" : origins_.Of("rdzv-id"));
  }

  void AddServer() {
    if (config_.server_place == ServerPlace::kInProcess) {
      return Add("rendezvous server", "in this process, no port", "a job of one node");
    }
    const std::string master = absl::StrCat(origins_.Of("master-addr"), ", port: ", origins_.Of("master-port"));
    Add("rdzv-endpoint", ServersText(config_), options_.rdzv_endpoint ? origins_.Of("rdzv-endpoint") : master);
    const std::string is_host = origins_.Of("is_host") == "default" ? origins_.Of("rdzv-conf") : origins_.Of("is_host");
    switch (config_.server_place) {
      case ServerPlace::kHere: return Add("rendezvous server", "hosted by this launcher", is_host);
      case ServerPlace::kElsewhere:
        return Add("rendezvous server", "this launcher connects to it",
                   options_.rdzv_conf.is_host ? is_host : origins_.Of("node-rank"));
      case ServerPlace::kHereIfLocal:
      case ServerPlace::kInProcess:
        return Add("rendezvous server", "hosted by that host's launcher", "default, unless the port is in use");
    }
  }

  // Shows paths and names only, never a secret.
  void AddCredentials() {
    const rendezvous::Credentials& c = config_.credentials;
    if (!c.token.empty()) Add("token", "given", origins_.Of("token-file"));
    if (!c.token_file.empty()) AddFlag("token-file", c.token_file);
    if (c.munge) Add("credentials", "MUNGE, where it works", cluster_.description);
    if (!c.tls_cert.empty()) AddFlag("tls-cert", c.tls_cert);
    if (!c.tls_key.empty()) AddFlag("tls-key", c.tls_key);
    if (!c.tls_ca.empty()) AddFlag("tls-ca", c.tls_ca);
    if (!c.tls_allowed_names.empty()) AddFlag("tls-allowed-names", absl::StrJoin(c.tls_allowed_names, ","));
  }

  void AddNode() {
    if (config_.node_rank) {
      Add("node-rank", absl::StrCat(*config_.node_rank), origins_.Of(options_.node_rank ? "node-rank" : "rdzv-conf"));
    }
    Add("host", cluster_.host ? cluster_.host->value : "this host's name",
        cluster_.host ? cluster_.host->source : "default");
    const bool alone = config_.server_place == ServerPlace::kInProcess;
    const std::string found_out = alone ? "loopback: a job of one node" : "that of the route to the endpoint";
    AddFlag("local-addr", options_.local_addr.value_or(found_out));
    if (cluster_.topology) Add("topology", cluster_.topology->value, cluster_.topology->source);
    if (!cluster_.hosts.empty()) Add("expected hosts", HostsText(cluster_.hosts), "the job's nodes");
    AddFlag("port-range", options_.port_range ? options_.port_range->ToString() : "any");
  }

  void AddRdzvConf() {
    const RdzvConf& given = options_.rdzv_conf;
    const rendezvous::JobSettings& job = config_.settings;
    const rendezvous::JobSettings defaults = rendezvous::DefaultSettings();
    const auto add = [&](const std::string& key, const google::protobuf::Duration& value,
                         const google::protobuf::Duration& default_value) {
      const absl::Duration duration = ToDuration(value);
      Add(key, absl::FormatDuration(duration),
          duration == ToDuration(default_value) ? "default" : origins_.Of("rdzv-conf"));
    };
    add("join_timeout", job.join_timeout(), defaults.join_timeout());
    add("last_call_timeout", job.last_call(), defaults.last_call());
    const char* const several = config_.more_endpoints.empty() ? "default" : "default with several endpoints";
    Add("heartbeat_timeout", absl::FormatDuration(ToDuration(job.heartbeat_timeout())),
        given.heartbeat_timeout ? origins_.Of("rdzv-conf") : several);
    if (given.reconnect_timeout) {
      Add("reconnect_timeout", absl::FormatDuration(*given.reconnect_timeout), origins_.Of("rdzv-conf"));
    } else {
      Add("reconnect_timeout", "30m (hosted server: 30s)", "default");
    }
    add("reconnect_grace", job.reconnect_grace(), defaults.reconnect_grace());
    add("restart_window", job.restart_window(), defaults.restart_window());
    add("restart_backoff", job.restart_backoff(), defaults.restart_backoff());
    Add("max_failures_at_step", absl::StrCat(job.max_failures_at_step()),
        job.max_failures_at_step() == defaults.max_failures_at_step() ? "default" : origins_.Of("rdzv-conf"));
    add("node_cooldown", job.node_cooldown(), defaults.node_cooldown());
  }

  void AddWorkers() {
    const WorkerCommand& command = config_.command;
    const std::string how = options_.no_python       ? origins_.Of("no-python")
                            : options_.module        ? origins_.Of("module")
                            : config_.command.python ? "a Python script"
                                                     : "the file is a program";
    if (command.programs.empty()) {
      Add("workers", "no script is given", "");
    } else {
      Add("workers",
          absl::StrCat(absl::StrJoin(command.programs, " or "), command.arguments.empty() ? "" : " ",
                       absl::StrJoin(command.arguments, " ")),
          how);
    }
    const OutputSettings& output = options_.output;
    AddFlag("log-dir", output.log_dir.empty() ? "none" : output.log_dir);
    AddStreams("redirects", output.redirects);
    AddStreams("tee", output.tee);
    const RankFilter& shown = output.local_ranks_filter;
    if (!shown.ranks.empty()) AddFlag("local-ranks-filter", shown.ToString());
    if (output.line_prefix != kDefaultLinePrefix) AddFlag("log-line-prefix-template", output.line_prefix);
    if (!config_.cpus.empty()) {
      std::vector<std::string> cpus;
      for (const std::vector<int>& of_worker : config_.cpus) cpus.push_back(RangesText(of_worker));
      AddFlag("numa-binding", absl::StrCat("CPUs ", absl::StrJoin(cpus, " or ")));
    }
    if (!config_.preload.empty()) AddFlag("preload", config_.preload);
    if (!config_.devices.empty()) AddFlag("virtual-local-rank", absl::StrJoin(config_.devices, " or "));
  }

  // Shows the value as it was given.
  void AddStreams(const std::string& flag, const StreamChoice& streams) {
    const std::string origin = origins_.Of(flag);
    Add(flag, streams.any() ? absl::string_view(origin).substr(origin.find('=') + 1) : "none", origin);
  }

  void AddEnd(absl::TimeZone zone) {
    AddFlag("signals-to-handle", SignalNames(options_.signals_to_handle));
    Add("signals passed on", config_.warning_signals.empty() ? "none" : SignalNames(config_.warning_signals),
        "warnings, unless in --signals-to-handle");
    const bool fitted = cluster_.batch && !options_.shutdown_timeout;
    Add("shutdown-timeout", absl::FormatDuration(config_.shutdown_timeout),
        fitted ? "default, but not more than the kill wait leaves" : origins_.Of("shutdown-timeout"));
    if (options_.hang != HangPolicy()) AddFlag("on-hang", HangPolicyText(options_.hang));
    if (!options_.on_end.empty()) AddFlag("on-end", options_.on_end);
    if (!options_.result.empty()) AddFlag("result", options_.result);
    if (options_.uninterruptible_timeout > absl::ZeroDuration()) {
      AddFlag("state D", absl::StrCat("at most ", absl::FormatDuration(options_.uninterruptible_timeout)));
    }
    if (options_.keep_orphans) AddFlag("orphans", "kept if in sessions of their own");
    if (options_.output.progress != ProgressMode::kAuto) {
      AddFlag("progress", options_.output.progress == ProgressMode::kOn ? "on" : "off");
    }
    if (!cluster_.batch) return;
    Add("kill wait", absl::FormatDuration(cluster_.batch->kill_wait), "from the batch system's SIGTERM to its SIGKILL");
    if (cluster_.batch->end_time) {
      Add("end time", absl::FormatTime("%Y-%m-%d %H:%M:%S %Ez", *cluster_.batch->end_time, zone),
          "when the job's time is over");
    }
    Add("requeues", absl::StrCat(cluster_.batch->restart_count), absl::StrCat("job ", cluster_.batch->job));
  }

  const LaunchConfig& config_;
  const Options& options_;
  const ClusterEnvironment& cluster_;
  const Origins& origins_;
  std::vector<Line> lines_;
};

}  // namespace

std::string ShowConfig(const LaunchConfig& config, const Origins& origins, absl::TimeZone time_zone) {
  const std::vector<Line> lines = Table(config, origins).Lines(time_zone);
  size_t settings = 0;
  size_t values = 0;
  for (const Line& line : lines) {
    settings = std::max(settings, line.setting.size());
    if (line.value.size() <= kMaxColumn) values = std::max(values, line.value.size());
  }
  std::string text;
  for (const Line& line : lines) {
    if (line.origin.empty()) {
      absl::StrAppendFormat(&text, "%-*s  %s\n", settings, line.setting, line.value);
    } else {
      absl::StrAppendFormat(&text, "%-*s  %-*s  %s\n", settings, line.setting, values, line.value, line.origin);
    }
  }
  for (const std::string& note : config.notes) absl::StrAppend(&text, "note: ", OneLine(note, 1000), "\n");
  return text;
}

}  // namespace ddprun::launcher
