#include "ddprunctl/ctl_options.h"

#include <CLI/CLI.hpp>
#include <cstdint>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/command_line.h"
#include "base/endpoint.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "base/version.h"

namespace ddprun::ctl {
namespace {

constexpr int kDefaultPort = 29400;

// Parses "3" or "2:4".
bool ParseSize(const std::string& text, Options* options) {
  const std::vector<std::string> parts = absl::StrSplit(text, ':');
  return parts.size() <= 2 && absl::SimpleAtoi(parts.front(), &options->min_nodes) &&
         absl::SimpleAtoi(parts.back(), &options->max_nodes) && options->min_nodes >= 1 &&
         options->min_nodes <= options->max_nodes;
}

absl::StatusOr<std::vector<std::string>> ParseServers(const std::string& text, const char* source) {
  std::vector<std::string> servers;
  for (absl::string_view server : absl::StrSplit(text, ',', absl::SkipEmpty())) {
    const absl::StatusOr<Endpoint> address = ParseEndpoint(server, kDefaultPort);
    if (!address.ok()) return absl::InvalidArgumentError(absl::StrCat(source, ": ", address.status().message()));
    servers.push_back(address->ToString());
  }
  if (servers.empty()) return absl::InvalidArgumentError(absl::StrCat(source, ": no server is named"));
  return servers;
}

void AddConnectionOptions(CLI::App& app, std::string* server, std::string* output, Options* options) {
  app.add_option("--server", *server,
                 "HOST[:PORT] of the rendezvous server, or several with commas (also DDPRUN_SERVER, else "
                 "PET_RDZV_ENDPOINT; default: that of the job's launcher on this host, else 127.0.0.1:29400)")
      ->type_name("HOST[:PORT]");
  app.add_option("--output", *output, "table or json")->check(CLI::IsMember({"table", "json"}))->capture_default_str();
  rendezvous::Credentials& credentials = options->credentials;
  app.add_option("--token-file", credentials.token_file,
                 "File whose first line is the server's token (also DDPRUN_TOKEN_FILE, or the token in DDPRUN_TOKEN)")
      ->type_name("FILE");
  app.add_option("--tls-cert", credentials.tls_cert, "PEM certificate chain to show to the server")->type_name("FILE");
  app.add_option("--tls-key", credentials.tls_key, "PEM key of --tls-cert")->type_name("FILE");
  app.add_option("--tls-ca", credentials.tls_ca, "CA certificates (PEM) that verify the server")->type_name("FILE");
}

CLI::App* AddCommand(CLI::App& app, const char* name, const char* description, Options* options) {
  CLI::App* command = app.add_subcommand(name, description);
  command->fallthrough();  // connection flags may follow the command
  command->final_callback([options, name] { options->command = name; });
  return command;
}

// Adds a command about ranks of a running job.
CLI::App* AddRankCommand(CLI::App& app, const char* name, const char* description, Options* options) {
  CLI::App* command = AddCommand(app, name, description, options);
  command->add_option("JOB", options->job_id, "Job id")->required();
  command->add_option("--rank", options->ranks, "Only these global ranks, separated by commas")
      ->type_name("RANK")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::Range(0, std::numeric_limits<int32_t>::max()));
  return command;
}

void AddCommands(CLI::App& app, Options* options, std::string* size, std::string* since) {
  AddCommand(app, "jobs", "List jobs", options);
  CLI::App* show = AddCommand(app, "show", "Show one job with its nodes", options);
  show->add_option("JOB", options->job_id, "Job id")->required();
  show->add_flag("--watch", options->follow,
                 "Show it again every second until it has ended, then exit with its exit code");
  CLI::App* wait = AddCommand(app, "wait", "Wait until a job has ended, then exit with its exit code", options);
  wait->add_option("JOB", options->job_id, "Job id")->required();
  CLI::App* nodes = AddCommand(app, "nodes", "List nodes of all jobs, or of one", options);
  nodes->add_option("JOB", options->job_id, "Job id");
  CLI::App* spares = AddCommand(app, "spares", "List nodes standing by to replace lost ones", options);
  spares->add_option("JOB", options->job_id, "Job id");
  AddCommand(app, "hosts", "List hosts, and which of them are drained", options);
  CLI::App* events = AddCommand(app, "events", "Show events of all jobs, or of one", options);
  events->add_option("JOB", options->job_id, "Job id");
  events->add_flag("--follow", options->follow, "Continue with new events as they happen");
  events->add_option("--after", options->after, "Only events with a greater number")
      ->type_name("NUMBER")
      ->check(CLI::Range(int64_t{0}, std::numeric_limits<int64_t>::max()));
  CLI::App* profile = AddRankCommand(app, "profile", "Sample the stacks of a running job's ranks, as a trace", options);
  profile->add_option("--seconds", options->seconds, "Length")->check(CLI::Range(0.1, 600.0))->capture_default_str();
  profile->add_option("--rate", options->rate, "Samples per second")
      ->check(CLI::Range(0.1, 20.0))
      ->capture_default_str();
  profile->add_option("--file", options->file, "Written for https://ui.perfetto.dev")
      ->type_name("FILE")
      ->capture_default_str();
  CLI::App* stacks = AddRankCommand(app, "stacks", "Show the stacks of a running job's ranks", options);
  stacks->add_flag("--native", options->native, "Also the native stack of each main thread");
  CLI::App* logs = AddRankCommand(app, "logs", "Show what a running job's ranks have printed", options);
  logs->add_option("--lines", options->lines, "Last lines of each stream of a rank (default: 20, with --since all)")
      ->type_name("NUMBER");
  logs->add_option("--since", *since, "Only output of this last time, as 30s, 5m or 1h30m")->type_name("TIME");
  logs->add_flag("--follow", options->follow, "Continue with new output, also after restarts, until the job has ended");
  CLI::App* top = AddRankCommand(app, "top", "Show what a running job's ranks use", options);
  top->add_flag("--once", options->once, "Show it once (without a terminal the default)");
  CLI::App* stop = AddCommand(app, "stop", "End a job; its launchers exit with 143", options);
  stop->add_option("JOB", options->job_id, "Job id")->required();
  CLI::App* resize = AddCommand(app, "resize", "Change how many nodes a job has", options);
  resize->add_option("JOB", options->job_id, "Job id")->required();
  resize->add_option("NODES", *size, "MIN:MAX, or one number for both")->required();
  CLI::App* kick = AddCommand(app, "kick", "Remove a node from a job; its launcher exits with 143", options);
  kick->add_option("JOB", options->job_id, "Job id")->required();
  kick->add_option("NODE", options->node, "Host or id of the node")->required();
  CLI::App* drain = AddCommand(app, "drain", "Replace a host's nodes where possible; give it no new work", options);
  drain->add_option("HOST", options->host, "Host name as shown by 'ddprunctl hosts'")->required();
  CLI::App* undrain = AddCommand(app, "undrain", "Allow new work on a drained host", options);
  undrain->add_option("HOST", options->host, "Host name as shown by 'ddprunctl hosts'")->required();
  CLI::App* completion = AddCommand(app, "completion", "Print a completion script for a shell", options);
  completion->add_option("SHELL", options->shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
}

// Generated from the command-line definition, so that the script can't be outdated.
std::string CompletionScript(const CLI::App& app, const std::string& shell) {
  std::vector<std::string> commands, flags, fish;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    commands.push_back(command->get_name());
    fish.push_back(absl::StrCat("complete -c ddprunctl -n __fish_use_subcommand -f -a ", command->get_name(), " -d \"",
                                absl::StrReplaceAll(command->get_description(), {{"\"", ""}}), "\""));
  }
  for (const CLI::Option* option : app.get_options([](const CLI::Option* o) { return !o->get_lnames().empty(); })) {
    flags.push_back(absl::StrCat("--", option->get_lnames().front()));
    fish.push_back(absl::StrCat("complete -c ddprunctl -l ", option->get_lnames().front()));
  }
  if (shell == "fish") return absl::StrCat(absl::StrJoin(fish, "\n"), "\n");
  const std::string bash =
      absl::StrCat("_ddprunctl() {\n  local word=${COMP_WORDS[COMP_CWORD]}\n  case $word in\n",
                   "    -*) COMPREPLY=($(compgen -W '", absl::StrJoin(flags, " "), "' -- \"$word\")) ;;\n",
                   "    *) COMPREPLY=($(compgen -W '", absl::StrJoin(commands, " "), "' -- \"$word\")) ;;\n",
                   "  esac\n}\ncomplete -o default -F _ddprunctl ddprunctl\n");
  return shell == "bash" ? bash : absl::StrCat("autoload -U +X bashcompinit && bashcompinit\n", bash);
}

absl::Status Finish(const std::string& given_server, const std::string& size, const std::string& since,
                    const std::function<std::string(const char*)>& variable, Options* options) {
  std::string server = given_server;
  const char* source = "--server";
  for (const char* name : {"DDPRUN_SERVER", "PET_RDZV_ENDPOINT"}) {
    if (!server.empty()) break;
    server = std::string(TrimValue(variable(name)));
    source = name;
  }
  if (!server.empty()) {
    DDPRUN_ASSIGN_OR_RETURN(options->servers, ParseServers(server, source));
    options->names_servers = true;
  }
  if (options->command == "resize" && !ParseSize(size, options)) {
    return absl::InvalidArgumentError(absl::StrCat("NODES is ", size, "; give MIN:MAX or one number, at least 1"));
  }
  if (!since.empty()) {
    absl::Duration time;
    if (!absl::ParseDuration(since, &time) || time < absl::ZeroDuration() || time == absl::InfiniteDuration()) {
      return absl::InvalidArgumentError(absl::StrCat("--since is ", since, "; give a time such as 30s, 5m or 1h30m"));
    }
    options->since = time;
  }
  options->follow = options->follow || options->command == "wait";
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<CommandLine> ParseCommandLine(const std::vector<std::string>& arguments,
                                             const std::function<std::string(const char*)>& variable) {
  CommandLine line;
  std::string server, size, since, output = "table";
  CLI::App app("Shows and controls the jobs of a rendezvous server.", "ddprunctl");
  app.set_version_flag("--version", absl::StrCat("ddprunctl ", kVersion));
  app.require_subcommand(1);
  app.footer(
      "Exit codes: 0 done, 1 failed or refused by the server, 2 wrong usage, 3 no such job, node or host; "
      "'wait' and 'show --watch' exit with the job's exit code.");
  AddConnectionOptions(app, &server, &output, &line.options);
  RepairValues(app);
  AddCommands(app, &line.options, &size, &since);
  const auto error_text = [&](const CLI::Error& error) {
    const bool unknown = line.options.command.empty() && !app.remaining().empty();
    return absl::StrCat(
        unknown ? absl::StrCat("no such command or flag: ", app.remaining().front()) : CliErrorText(error),
        " (see ddprunctl --help)");
  };
  DDPRUN_ASSIGN_OR_RETURN(line.answer, ParseWords(app, arguments, error_text));
  if (!line.answer.empty()) return line;
  line.options.json = output == "json";
  if (line.options.command == "completion") {
    line.answer = CompletionScript(app, line.options.shell);
    return line;
  }
  DDPRUN_RETURN_IF_ERROR(Finish(server, size, since, variable, &line.options));
  return line;
}

}  // namespace ddprun::ctl
