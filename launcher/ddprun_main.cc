// ddprun: starts this node's workers of a distributed job and keeps the job running (docs/starting_jobs.md).
#include <fcntl.h>
#include <netdb.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <system_error>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/mutex.h"
#include "base/crash_handler.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/process.h"
#include "base/secret.h"
#include "base/steady_time.h"
#include "base/text.h"
#include "launcher/agent.h"
#include "launcher/cluster/detect.h"
#include "launcher/cluster/slurm_text.h"
#include "launcher/config/cluster_environment.h"
#include "launcher/config/flag_value.h"
#include "launcher/config/launch_config.h"
#include "launcher/config/parse_options.h"
#include "launcher/config/show_config.h"
#include "launcher/hosts/host_agent.h"
#include "launcher/hosts/hosts_launcher.h"
#include "launcher/hosts/remote_start.h"
#include "launcher/interpreter.h"
#include "launcher/io/file_descriptor.h"
#include "launcher/job_end.h"
#include "launcher/process/guard.h"
#include "launcher/process/hardware.h"
#include "launcher/process/orphan_sweeper.h"
#include "launcher/process/proc_files.h"
#include "launcher/process/python_environment.h"
#include "launcher/process/resolve_program.h"
#include "launcher/process/signal_source.h"
#include "launcher/subcommand.h"
#include "rendezvous/core/credentials.h"
#include "rendezvous/wire/credential_files.h"
#include "worker_contract/exit_codes.h"

namespace ddprun::launcher {
namespace {

using worker_contract::kExitFailed;
using worker_contract::kExitUsage;
// Limit for flushing the remaining log lines at exit.
constexpr absl::Duration kLastWords = absl::Seconds(1);
// Variables by which ddprun's Python package controls the launcher. Workers do not inherit them.
// Caller: "PID" or "PID FOLDER".
constexpr char kParentVariable[] = "DDPRUN_ENDS_WITH_PROCESS";
// The calling interpreter, which runs the workers unless the user names another.
constexpr char kPythonVariable[] = "DDPRUN_PYTHON";
// ForkedServer: "SOCKET PID".
constexpr char kForkedServerVariable[] = "DDPRUN_FORKED_SERVER";
// Name of the function that the workers call, for display.
constexpr char kFunctionVariable[] = "DDPRUN_FUNCTION";

std::optional<std::string> Variable(const std::string& name) {
  const char* value = getenv(name.c_str());
  if (value == nullptr) return std::nullopt;
  return value;
}

int Fail(const absl::Status& status, int code) {
  Log(LogLevel::kError, status.message());
  return code;
}

// Shows errors, warnings and, with LOGLEVEL=INFO, what the launcher does.
void SetLogLevel() { InitLog("ddprun", ParseLogLevel(Variable("LOGLEVEL").value_or(""), LogLevel::kWarning)); }

// The process that started this one through the Python package. The launcher ends with it, even if it is killed by
// SIGKILL, and the destructor then removes its folder, which holds files only.
class Caller {
 public:
  Caller() {
    const std::optional<std::string> variable = TakeVariable(kParentVariable);
    if (!variable) return;
    std::tie(pid_, folder_) = std::pair<std::string, std::string>(absl::StrSplit(*variable, absl::MaxSplits(' ', 1)));
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    // It may have ended before prctl.
    if (HasEnded()) {
      RemoveFolder();
      raise(SIGTERM);
    }
  }
  ~Caller() {
    if (HasEnded()) RemoveFolder();
  }
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;

 private:
  bool HasEnded() const { return !pid_.empty() && std::to_string(getppid()) != pid_; }
  void RemoveFolder() const {
    if (folder_.empty()) return;
    std::error_code error;
    for (std::filesystem::directory_iterator next(folder_, error); !error && next != end(next); next.increment(error)) {
      unlink(next->path().c_str());
    }
    rmdir(folder_.c_str());
  }

  std::string pid_, folder_;
};

// `command`: argv[0].
PythonFacts InspectPython(const std::string& command) {
  PythonFacts facts;
  facts.python_exec = std::string(absl::StripAsciiWhitespace(Variable("PYTHON_EXEC").value_or("")));
  facts.python_exec = ExpandHome(*facts.python_exec, Variable("HOME").value_or("")).value_or(*facts.python_exec);
  facts.python_exec_is_file = access(facts.python_exec.value_or("").c_str(), F_OK) == 0;
  const std::optional<std::string> calling = TakeVariable(kPythonVariable);
  facts.beside_command = calling ? *calling : PythonBeside(command, SearchPath());
  facts.virtual_env = Variable("VIRTUAL_ENV");
  facts.conda_prefix = Variable("CONDA_PREFIX");
  return facts;
}

std::optional<ForkedServer> TakeForkedServer() {
  const std::string variable = TakeVariable(kForkedServerVariable).value_or("");
  ForkedServer server;
  const std::pair<std::string, std::string> numbers = absl::StrSplit(variable, absl::MaxSplits(' ', 1));
  if (!absl::SimpleAtoi(numbers.first, &server.socket) || !absl::SimpleAtoi(numbers.second, &server.pid)) {
    return std::nullopt;
  }
  return server;
}

// A descriptor that `ddprun --hosts` has given to this launcher; -1: none.
int TakeDescriptor(const char* variable) {
  int fd;
  const bool has_fd = absl::SimpleAtoi(TakeVariable(variable).value_or(""), &fd);
  return has_fd && fcntl(fd, F_SETFD, FD_CLOEXEC) == 0 ? fd : -1;
}

// Agent::Settings::send_failure of a launcher that `ddprun --hosts` has started.
std::function<bool(const hosts::v1::JobFailure&)> TakeFailureFd() {
  const int fd = TakeDescriptor(kFailureFdVariable);
  if (fd < 0) return nullptr;
  return [fd](const hosts::v1::JobFailure& failure) { return failure.SerializeToFileDescriptor(fd); };
}

HostFacts InspectHost(const PythonFacts& python, const Options& options) {
  HostFacts facts;
  facts.cpus = CpuCount();
  facts.devices = InspectDevices();
  facts.random_id = RandomId();
  facts.python = python;
  if (options.cpu_binding != CpuBinding::kNone) facts.topology = ReadCpuTopology();
  if (!options.script.empty()) facts.script = InspectScript(options.script.front());
  return facts;
}

// Fully qualified name of this host; empty if unknown.
std::string FullHostname() {
  addrinfo hints = {};
  hints.ai_flags = AI_CANONNAME;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(Hostname().c_str(), nullptr, &hints, &found) != 0) return "";
  const std::string name = found->ai_canonname == nullptr ? "" : found->ai_canonname;
  freeaddrinfo(found);
  return name;
}

// Detects the environment that started this process: reads environment variables, the files that they name,
// slurm.conf and, in a Kubernetes pod, the host's full name (which may query a name server). `ports` restricts the port
// of a derived endpoint.
// InvalidArgument: as DetectCluster (cluster/detect.h).
absl::StatusOr<ClusterEnvironment> ProbeCluster(const EnvironmentLookup& environment,
                                                const std::optional<PortRange>& ports) {
  const bool in_pod = environment("JOB_COMPLETION_INDEX").has_value();
  absl::StatusOr<ClusterEnvironment> found =
      DetectCluster(environment, ports, in_pod ? FullHostname() : "", ReadSmallFile);
  if (!found.ok() || found->starter != ClusterEnvironment::Starter::kSlurm || !found->batch) return found;
  std::string text;
  for (const std::string& place : SlurmConfPaths(environment)) {
    if (text.empty()) text = ReadSmallFile(place);
  }
  // Merged even if empty, since SLURM's defaults apply then.
  MergeSlurmConf(ParseSlurmConf(text), *found->batch);
  return found;
}

// Reads the token from the environment unless a flag names a file. The variables are removed, so that workers and
// helper programs do not inherit them.
void ReadTokenVariables(Options* options, Origins* origins) {
  const bool is_given = !options->credentials.token_file.empty();
  rendezvous::TakeTokenFromEnvironment(&options->credentials);
  if (is_given || !options->credentials.has_token()) return;
  const std::string& file = options->credentials.token_file;
  origins->Give("token-file",
                file.empty() ? rendezvous::kTokenVariable : absl::StrCat(rendezvous::kTokenFileVariable, "=", file));
}

absl::Status CheckCredentialsOf(const LaunchConfig& config) {
  std::vector<std::string> warnings;
  const bool hosts = config.server_place == ServerPlace::kHere;
  const absl::Status status = rendezvous::CheckCredentials(
      config.credentials, hosts ? rendezvous::CredentialSide::kBoth : rendezvous::CredentialSide::kClient, &warnings);
  for (const std::string& warning : warnings) Log(LogLevel::kWarning, warning);
  return status;
}

// --hosts: this process starts the job's launchers and is none of them.
int StartOnHosts(const ParsedOptions& parsed, const HostFacts& facts) {
  Options here = parsed.options;  // without what depends on a node
  here.nnodes = {};
  here.nproc_per_node = {};
  here.node_rank = {};
  here.virtual_local_rank = false;
  here.cpu_binding = CpuBinding::kNone;
  const absl::StatusOr<LaunchConfig> config = Resolve(here, facts);
  if (!config.ok()) return Fail(config.status(), kExitUsage);
  absl::StatusOr<HostsInput> input = ReadHostsInput(parsed.options, FindInterpreter(*config));
  if (!input.ok()) return Fail(input.status(), kExitUsage);
  absl::StatusOr<HostsPlan> plan = PlanHosts(parsed, *config, *std::move(input));
  if (!plan.ok()) return Fail(plan.status(), kExitUsage);
  return RunOnHosts(*std::move(plan));
}

int Main(const std::string& command, const std::vector<std::string>& arguments) {
  OpenMissingStandardStreams();
  const Caller caller;
  SetLogLevel();
  const PythonFacts python = InspectPython(command);
  if (const std::optional<int> code = RunSubcommand(arguments, python)) return *code;
  // Neither a closed reader of our output nor a log file beyond `ulimit -f` may kill the launcher.
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);
  InstallCrashReport("ddprun");
  if (arguments == std::vector<std::string>{kAgentArgument}) return RunHostAgent();
  if (arguments.size() > 2 && arguments[0] == kKeeperArgument) return RunHostKeeper(arguments);
  const auto send_failure = TakeFailureFd();
  const int listener = TakeDescriptor(kListenerFdVariable);
  absl::StatusOr<ParseResult> parsed = ParseOptions(arguments, Variable);
  if (!parsed.ok()) return Fail(parsed.status(), kExitUsage);
  if (const auto* info = std::get_if<InfoText>(&*parsed)) {
    fputs(info->text.c_str(), stdout);
    return 0;
  }
  auto& [options, origins, given] = std::get<ParsedOptions>(*parsed);
  ReadTokenVariables(&options, &origins);
  const HostFacts facts = InspectHost(python, options);
  if (options.has_hosts() && !options.show_config) return StartOnHosts(std::get<ParsedOptions>(*parsed), facts);
  const absl::StatusOr<ClusterEnvironment> cluster =
      MergeEnvironment(ProbeCluster(Variable, options.port_range), &options, &origins);
  if (!cluster.ok()) return Fail(cluster.status(), kExitUsage);
  absl::StatusOr<LaunchConfig> config = Resolve(options, facts, *cluster);
  if (!config.ok()) return Fail(config.status(), kExitUsage);
  if (options.show_config) {
    fputs(ShowConfig(*config, origins, absl::LocalTimeZone()).c_str(), stdout);
    return 0;
  }
  config->forked_server = TakeForkedServer();
  config->listener = listener;
  config->entrypoint = TakeVariable(kFunctionVariable).value_or(config->entrypoint);
  for (const std::string& note : config->notes) Log(LogLevel::kWarning, note);
  if (absl::Status status = ReadScriptOnce(&*config); !status.ok()) return Fail(status, kExitUsage);
  if (const std::string python = FindInterpreter(*config); !python.empty()) {
    Log(LogLevel::kInfo, absl::StrCat("running workers with ", python));
  }
  if (const std::string& result = config->options.result; !result.empty()) {
    if (absl::Status status = CheckResultFile(result); !status.ok()) return Fail(status, kExitUsage);
  }
  if (config->server_place != ServerPlace::kInProcess) {
    if (absl::Status status = CheckCredentialsOf(*config); !status.ok()) return Fail(status, kExitUsage);
  }

  const std::string launcher_id = RandomId();
  absl::StatusOr<Guard> guard = Guard::Start(launcher_id);
  if (!guard.ok()) return Fail(guard.status(), kExitFailed);
  if (absl::Status status = BecomeSubreaper(); !status.ok()) return Fail(status, kExitFailed);
  std::vector<int> signals = config->options.signals_to_handle;
  signals.insert(signals.end(), config->warning_signals.begin(), config->warning_signals.end());
  signals.push_back(SIGCHLD);
  absl::StatusOr<std::unique_ptr<SignalSource>> source = SignalSource::Create(signals);
  if (!source.ok()) return Fail(source.status(), kExitFailed);
  // From here on signals are events of the loop, so logging must not block it on a terminal.
  StartLogThread();
  // Needed for the stores and a hosted server.
  RaiseFileLimit();

  int code;
  {
    Agent agent({*std::move(config), launcher_id, &*guard, send_failure}, *std::move(source));
    code = agent.Run();
  }
  guard->Dismiss();
  return code;
}

}  // namespace
}  // namespace ddprun::launcher

int main(int argc, char** argv) {
  ddprun::ResetSignals();
  ddprun::launcher::Guard::RunIfAsked(argc, argv);
  // Abseil packages of distributions enable deadlock detection, which slows down every lock of gRPC's mutexes.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  const int code =
      ddprun::launcher::Main(argc > 0 ? argv[0] : "", std::vector<std::string>(argv + std::min(argc, 1), argv + argc));
  ddprun::FlushLog(ddprun::SteadyNow() + ddprun::launcher::kLastWords);
  return code;
}
