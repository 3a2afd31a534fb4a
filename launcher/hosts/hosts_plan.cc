#include "launcher/hosts/hosts_plan.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "rendezvous/core/credentials.h"

namespace ddprun::launcher {
namespace {

// Environment variables that every host gets from this one, if they are set here: names, or beginnings of names before
// a '*'. --env adds to them.
constexpr char kPassedVariables[] =
    "PATH LD_LIBRARY_PATH VIRTUAL_ENV CONDA_PREFIX CONDA_DEFAULT_ENV LANG LC_* TZ PYTHON* TORCH* PYTORCH* NCCL_* "
    "GLOO_* UCX_* FI_* OMP_* MKL_* KMP_* TRITON_* HF_* TRANSFORMERS_* WANDB_* TOKENIZERS_* LOGLEVEL";
// Flags of --hosts itself, which the launchers on the hosts don't get.
constexpr absl::string_view kOwnFlags[] = {"hosts", "env", "detach", "show-config"};
// Flags that say which node a launcher is: every host gets its own.
constexpr absl::string_view kNodeFlags[] = {"standalone", "node-rank", "master-addr", "local-addr"};
constexpr size_t kMaxFileName = 240;
constexpr char kLinePrefix[] = "[${rank}]: ";

template <typename Words>
bool Has(const Words& words, absl::string_view word) {
  return std::find(std::begin(words), std::end(words), word) != std::end(words);
}

bool Matches(absl::string_view name, absl::string_view pattern) {
  return absl::ConsumeSuffix(&pattern, "*") ? absl::StartsWith(name, pattern) : name == pattern;
}

// The variables to pass, by name. `asked`: "NAME", "NAME*" or "NAME=VALUE" of --env.
absl::StatusOr<std::map<std::string, std::string>> PassedVariables(const std::vector<std::string>& asked,
                                                                   const std::vector<std::string>& environment) {
  std::map<std::string, std::string> passed;
  const auto take = [&](absl::string_view pattern) {
    bool found = false;
    for (const std::string& entry : environment) {
      const std::pair<std::string, std::string> variable = absl::StrSplit(entry, absl::MaxSplits('=', 1));
      if (!Matches(variable.first, pattern)) continue;
      passed.insert(variable);
      found = true;
    }
    return found;
  };
  for (const absl::string_view pattern : absl::StrSplit(kPassedVariables, ' ')) take(pattern);
  for (const std::string& word : asked) {
    if (const size_t equals = word.find('='); equals != std::string::npos) {
      passed[word.substr(0, equals)] = word.substr(equals + 1);
    } else if (!take(word) && !absl::EndsWith(word, "*")) {
      return absl::InvalidArgumentError(absl::StrCat("--env: ", Quoted(word), " is not set here"));
    }
  }
  return passed;
}

// A file's name for any text; other texts have other names.
absl::StatusOr<std::string> FileNameOf(absl::string_view text) {
  std::string name;
  for (const char c : text) {
    if (absl::ascii_isalnum(c) || absl::StrContains("-_.,:@=+", c)) {
      name.push_back(c);
    } else {
      absl::StrAppendFormat(&name, "%%%02X", static_cast<unsigned char>(c));
    }
  }
  if (name != "." && name != ".." && !name.empty() && name.size() <= kMaxFileName) return name;
  return absl::InvalidArgumentError(absl::StrCat(Quoted(text), " can't be the name of a folder: choose another one"));
}

absl::Status CheckFlags(const ParsedOptions& parsed, int hosts) {
  const auto& [options, origins, given] = parsed;
  for (const absl::string_view flag : kNodeFlags) {
    if (!origins.IsGiven(std::string(flag))) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        origins.Of(std::string(flag)), " with --hosts: leave it out, --hosts tells each launcher which node it is"));
  }
  if (origins.IsGiven("nnodes") && options.nnodes.max != hosts) {
    return absl::InvalidArgumentError(absl::StrCat(origins.Of("nnodes"), ", but --hosts names ", hosts,
                                                   ": leave --nnodes out, or make its maximum ", hosts));
  }
  if (!options.script.empty() && options.script.front() == "-") {
    return absl::InvalidArgumentError("--hosts can't send a script from standard input: give a file");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<HostsPlan> PlanHosts(const ParsedOptions& parsed, const LaunchConfig& config, HostsInput input) {
  const auto& [options, origins, given] = parsed;
  HostsPlan plan;
  plan.hosts = std::move(input.hosts);
  const int count = static_cast<int>(plan.hosts.size());
  DDPRUN_RETURN_IF_ERROR(CheckFlags(parsed, count));
  plan.has_node_count = origins.IsGiven("nnodes");
  plan.min_nodes = plan.has_node_count ? options.nnodes.min : count;
  plan.has_endpoint = options.rdzv_endpoint.has_value();
  plan.ports = options.port_range;
  plan.job_id = options.rdzv_id.value_or(input.random_job_id);
  plan.detach = options.detach;
  plan.may_restart = config.settings.max_restarts() > 0 || plan.min_nodes < count;
  plan.time_zone = input.time_zone;
  plan.stop_patience = config.shutdown_timeout + absl::Seconds(15);
  if (!options.on_end.empty()) plan.stop_patience += kEndCommandLimit;
  for (const auto& [flag, value] : given) {
    if (!Has(kOwnFlags, flag) && flag != "rdzv-id") plan.flags.push_back(absl::StrCat("--", flag, "=", value));
  }
  if (!options.output.tee.any() && !options.output.redirects.any()) plan.flags.push_back("--tee=3");
  if (!origins.IsGiven("log-line-prefix-template")) {
    plan.flags.push_back(absl::StrCat("--log-line-prefix-template=", kLinePrefix));
  }
  plan.script = options.script;

  const absl::StatusOr<std::string> job = FileNameOf(plan.job_id);
  if (!job.ok()) return absl::InvalidArgumentError(absl::StrCat(origins.Of("rdzv-id"), ": ", job.status().message()));
  plan.job_folder = *job;
  for (const HostSpec& host : plan.hosts) {
    const absl::StatusOr<std::string> name = FileNameOf(host.name);
    if (!name.ok()) return absl::InvalidArgumentError(absl::StrCat("--hosts: ", name.status().message()));
    plan.folders.push_back(absl::StrCat(*job, "/", *name));
  }

  hosts::v1::HostCommand::Prepare& prepare = plan.prepare;
  if (plan.follows()) return plan;
  prepare.set_token(std::move(input.random_start));
  prepare.set_detach(plan.detach);
  prepare.set_folder(input.folder);
  prepare.set_python(input.python);
  prepare.set_program(!config.command.python);
  if (!options.module)
    prepare.set_script(config.command.python ? options.script.front() : config.command.programs.front());
  DDPRUN_ASSIGN_OR_RETURN(auto variables, PassedVariables(options.passed_variables, input.environment));
  if (!input.python.empty()) variables.insert({"PYTHON_EXEC", input.python});
  plan.token = options.credentials.token;
  const bool has_own_server = !plan.has_endpoint && !options.credentials.has_token() && !options.credentials.has_tls();
  if (has_own_server)
    plan.token = std::move(input.random_token);  // so that other users can neither join nor stop the job
  if (!plan.token.empty()) variables[rendezvous::kTokenVariable] = plan.token;
  for (const auto& [name, value] : variables) prepare.add_environment(absl::StrCat(name, "=", value));
  return plan;
}

}  // namespace ddprun::launcher
