#include "launcher/workers/worker_group.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <type_traits>
#include <utility>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "launcher/fork_server/fork_server.h"
#include "launcher/io/file_descriptor.h"
#include "launcher/process/guard.h"
#include "launcher/process/proc_files.h"
#include "launcher/process/resolve_program.h"
#include "launcher/process/spawn_process.h"
#include "launcher/report/error_file_format.h"
#include "launcher/report/explain_end.h"
#include "worker_contract/exit_codes.h"
#include "worker_contract/worker_link.h"

namespace ddprun::launcher {

using rendezvous::WorkerFailure;

namespace {

constexpr size_t kMaxShownPath = 4096;
constexpr char kPortGuard[] = "libddprun_ports.so";
constexpr char kCrashReport[] = "libddprun_crash.so";

// Finds a library for LD_PRELOAD, which separates names by spaces and colons.
absl::StatusOr<std::string> FindLibrary(const char* name) {
  absl::StatusOr<std::string> file = CompanionFile(name);
  if (file.ok() && file->find_first_of(" :") != std::string::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat(*file, " can't be preloaded, because its path has a space or a colon; install ddprun elsewhere"));
  }
  return file;
}

bool HasMacro(const WorkerCommand& command) {
  return std::any_of(command.arguments.begin(), command.arguments.end(),
                     [](const std::string& argument) { return absl::StrContains(argument, kLocalRankMacro); });
}

}  // namespace

WorkerGroup::WorkerGroup(Settings settings, WorkerOutput output, EventLoop* loop, Events events)
    : settings_(std::move(settings)),
      output_(std::move(output)),
      loop_(loop),
      events_(std::move(events)),
      pids_(settings_.config->slots) {}

absl::StatusOr<std::unique_ptr<WorkerGroup>> WorkerGroup::Create(Settings settings, EventLoop* loop, LogPump* pump,
                                                                 Events events) {
  DDPRUN_ASSIGN_OR_RETURN(WorkerOutput output,
                          WorkerOutput::Create(*settings.config, settings.host, settings.launcher_id, loop, pump));
  std::unique_ptr<WorkerGroup> group(new WorkerGroup(std::move(settings), std::move(output), loop, std::move(events)));
  DDPRUN_ASSIGN_OR_RETURN(group->watch_,
                          ChildWatch::Create(loop, [group = group.get()](const std::vector<ProcessEnd>& ends) {
                            group->OnProcessesEnded(ends);
                          }));
  DDPRUN_RETURN_IF_ERROR(group->FindPreloaded());
  group->OpenLink();
  (void)group->Program();  // now, before heartbeats begin, because the file system may stall; Start reports errors
  if (!group->settings_.config->preload.empty() || group->settings_.config->forked_server) group->StartForkServer();
  return group;
}

WorkerGroup::~WorkerGroup() {
  *alive_ = false;
  output_.Close();
}

absl::Status WorkerGroup::FindPreloaded() {
  const LaunchConfig& config = *settings_.config;
  if (config.command.python) {
    absl::StatusOr<std::string> library = FindLibrary(kCrashReport);
    if (library.ok()) {
      settings_.facts.preloaded.push_back(*std::move(library));
    } else {
      Log(LogLevel::kInfo,
          absl::StrCat("crashes in native code will be reported without a stack: ", library.status().message()));
    }
  }
  if (!config.options.port_range) return absl::OkStatus();
  absl::StatusOr<std::string> library = FindLibrary(kPortGuard);
  if (!library.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("can't enforce --port-range: ", library.status().message(), "; or leave out --port-range"));
  }
  settings_.facts.preloaded.push_back(*std::move(library));
  return absl::OkStatus();
}

void WorkerGroup::OpenLink() {
  LinkServer::Events events;
  events.on_line = [this](pid_t pid, worker_contract::WorkerLinkMessage line) { OnLinkLine(pid, std::move(line)); };
  events.on_closed = [this](pid_t pid) { OnLinkClosed(pid); };
  events.on_probe = [this](pid_t pid, pid_t process, UniqueFd socket) {
    const auto found = workers_.find(pid);
    if (found != workers_.end()) events_.on_probe(found->second.local_rank, process, std::move(socket));
  };
  events.on_progress = [this](pid_t pid, const ReportedProgress& progress) {
    const auto found = workers_.find(pid);
    if (found == workers_.end()) return;
    ReportedProgress reported = progress;
    // A child's exit is not the worker's.
    if (reported.progress.phase == worker_contract::kExitingPhase && link_->ReporterOf(pid) != pid) {
      reported.progress.phase = worker_contract::kFinishedPhase;
    }
    events_.on_progress(found->second.local_rank, reported);
  };
  absl::StatusOr<std::unique_ptr<LinkServer>> link = LinkServer::Create(std::move(events), loop_);
  if (link.ok()) {
    link_ = *std::move(link);
    settings_.facts.worker_link = link_->address();
  } else {
    Log(LogLevel::kWarning, absl::StrCat(link.status().message(), "; workers can't report their progress"));
  }
}

void WorkerGroup::Start(const rendezvous::Assignment& assignment, const LocalRanks& ranks) {
  assignment_ = assignment;
  for (const int32_t rank : ranks) {
    const pid_t pid = std::exchange(pids_[rank], 0);
    workers_.erase(pid);
    if (link_ != nullptr) link_->Remove(pid);
    opening_[rank].clear();
  }
  // Cancel abandoned workers that the fork server has not created yet.
  std::erase_if(starting_, [&](const auto& entry) {
    const bool forgotten = std::find(ranks.begin(), ranks.end(), entry.second.local_rank) != ranks.end();
    if (forgotten) fork_server_->Cancel(entry.first);
    return forgotten;
  });
  if (opening_.empty()) return;
  LocalRanks opened;
  for (const auto& [rank, signals] : opening_) opened.push_back(rank);
  output_.Open(assignment.restart_count(), assignment.base_rank(), opened,
               [this, opened](auto streams) { OnOpened(opened, std::move(streams)); });
}

void WorkerGroup::OnOpened(const LocalRanks& ranks, std::vector<absl::StatusOr<WorkerStreams>> streams) {
  if (opening_.empty()) return;  // all were stopped
  const OomSample oom_before = SampleOom();
  std::vector<Launch> to_fork;
  for (size_t i = 0; i < ranks.size(); ++i) {
    auto opening = opening_.extract(ranks[i]);
    if (opening.empty()) continue;
    absl::StatusOr<Launch> launch = Prepare(ranks[i], std::move(streams[i]), oom_before);
    absl::Status status = launch.status();
    if (status.ok()) launch->signals = std::move(opening.mapped());
    if (status.ok() && events_.on_output) {
      events_.on_output(ranks[i], launch->streams.out_source, launch->streams.err_source);
    }
    if (status.ok() && fork_server_ != nullptr) {
      to_fork.push_back(*std::move(launch));
    } else if (status.ok()) {
      status = Spawn(*std::move(launch));
    }
    if (status.ok()) continue;
    LocalRanks not_started = {ranks[i]};
    for (const Launch& other : to_fork) not_started.push_back(other.local_rank);
    for (const auto& [rank, signals] : std::exchange(opening_, {})) not_started.push_back(rank);
    return events_.on_start_failed({not_started, StartFailure(ranks[i], status)});
  }
  std::vector<ForkServer::Request> requests;
  for (const Launch& launch : to_fork) {
    requests.push_back(
        {launch.request.environment, launch.request.stdout_fd, launch.request.stderr_fd, launch.request.cpus});
  }
  if (requests.empty()) return events_.on_all_started();
  const std::vector<ForkServer::Ticket> tickets = fork_server_->Fork(requests);
  for (size_t i = 0; i < tickets.size(); ++i) starting_.emplace(tickets[i], std::move(to_fork[i]));
}

WorkerFailure WorkerGroup::StartFailure(int32_t local_rank, const absl::Status& status) const {
  WorkerFailure failure = NewFailure(local_rank);
  failure.set_exit_code(ExitCodeOfStartError(status));
  // A retry may find free memory or processes, but not another program.
  failure.set_restartable(absl::IsResourceExhausted(status));
  failure.set_message(std::string(status.message()));
  return failure;
}

absl::StatusOr<std::string> WorkerGroup::Program() {
  if (!program_.empty()) return program_;
  const WorkerCommand& command = settings_.config->command;
  absl::Status first_error;
  for (const std::string& name : command.programs) {
    absl::StatusOr<std::string> program = ResolveProgram(name, SearchPath());
    if (program.ok()) {
      if (!command.script.empty() && access(command.script.c_str(), F_OK) != 0) {
        // A program of PATH would have been run.
        const bool is_python = absl::StartsWith(command.script, "python");
        return absl::NotFoundError(
            absl::StrCat("no such script: ", Visible(command.script, kMaxShownPath),
                         is_python ? "; leave it out, because ddprun starts Python itself (PYTHON_EXEC)" : ""));
      }
      program_ = *program;
      return program_;
    }
    if (first_error.ok()) first_error = program.status();
  }
  return first_error;
}

std::vector<int> WorkerGroup::IgnoredSignals() const {
  std::vector<int> signals;
  // A batch system sends its warning to every process: a worker that does not handle it must survive.
  if (settings_.config->cluster.batch) signals = settings_.config->warning_signals;
  struct sigaction action;
  if (sigaction(SIGHUP, nullptr, &action) == 0 && action.sa_handler == SIG_IGN) signals.push_back(SIGHUP);  // nohup
  return signals;
}

absl::StatusOr<WorkerGroup::Launch> WorkerGroup::Prepare(int32_t local_rank, absl::StatusOr<WorkerStreams> streams,
                                                         const OomSample& oom_before) {
  const LaunchConfig& config = *settings_.config;
  DDPRUN_ASSIGN_OR_RETURN(std::string program, Program());
  if (!streams.ok()) return streams.status();
  Launch launch{local_rank, {}, *std::move(streams), oom_before, {}};
  launch.request.program = program;
  launch.request.argv = config.command.Argv(program);
  const std::string rank = absl::StrCat(local_rank);
  for (std::string& word : launch.request.argv) absl::StrReplaceAll({{kLocalRankMacro, rank}}, &word);
  launch.request.environment =
      RankEnvironment(assignment_, local_rank, config, settings_.facts,
                      config.options.output.no_files ? "" : launch.streams.error_file.path(), settings_.environment);
  if (config.command.standard_input >= 0) {
    // Opened anew, because the position in the file must not be shared.
    const std::string file = absl::StrCat("/proc/self/fd/", config.command.standard_input);
    launch.input.reset(open(file.c_str(), O_RDONLY | O_CLOEXEC));
    if (!launch.input.valid()) return ErrnoStatus(errno, "opening the script that was read from standard input");
    launch.request.stdin_fd = launch.input.get();
  }
  launch.request.stdout_fd = launch.streams.out.get();
  launch.request.stderr_fd = launch.streams.err.get();
  if (!config.cpus.empty()) launch.request.cpus = config.cpus[local_rank];
  launch.request.ignored_signals = IgnoredSignals();
  return launch;
}

absl::Status WorkerGroup::Spawn(Launch launch) {
  DDPRUN_ASSIGN_OR_RETURN(Child child, CreateChild(launch.request));
  return OnCreated(std::move(child), std::move(launch));
}

absl::Status WorkerGroup::OnCreated(Child child, Launch launch) {
  const pid_t pid = child.pid;
  StartGate gate = std::move(child.gate);
  if (absl::Status status = watch_->Watch(std::move(child)); !status.ok()) {
    kill(pid, SIGKILL);  // ReapDeadOrphans reaps it
    return status;
  }
  pids_[launch.local_rank] = pid;
  Worker worker{
      launch.local_rank, SteadyNow(),    std::move(launch.streams.error_file), std::move(launch.streams.error_tail),
      launch.oom_before, std::move(gate)};
  Worker& kept = workers_.insert_or_assign(pid, std::move(worker)).first->second;
  MarkProcess(pid, settings_.launcher_id);
  if (link_ != nullptr) link_->Add(pid, assignment_.base_rank() + launch.local_rank);
  for (const int signal : launch.signals) Signal(signal, {launch.local_rank});
  // Ask only now that the process exists: if this thread is stopped afterwards, the guard can still kill the worker.
  events_.may_start() ? kept.gate.Open() : Kill({launch.local_rank});
  return absl::OkStatus();
}

// The fork server (--preload), which starts the workers instead of Spawn.

void WorkerGroup::StartForkServer() {
  const LaunchConfig& config = *settings_.config;
  const absl::StatusOr<std::string> program = Program();
  if (!program.ok()) return;  // reported when workers start
  if (!config.forked_server && !config.command.python && !IsLinkedWithWorkerRuntime(*program)) {
    return Log(LogLevel::kInfo, absl::StrCat("--preload has no effect: ", *program,
                                             " is not a program that links ddprun's worker runtime"));
  }
  if (!OpenPidfd(getpid()).valid()) {
    return Log(LogLevel::kWarning, absl::StrCat("--preload has no effect: pidfd_open: ", strerror(errno),
                                                " (a seccomp filter of the container runtime refuses it?)"));
  }
  if (HasMacro(config.command)) {
    return Log(LogLevel::kInfo,
               absl::StrCat("--preload has no effect: the arguments of workers differ in ", kLocalRankMacro));
  }
  ForkServer::Settings server;
  server.worker_argv = config.command.Argv(*program);
  server.running = config.forked_server;
  server.is_program = server.running || !config.command.python;
  server.script = config.command.script_argument + 1;
  server.is_module = config.command.script.empty();
  server.modules = config.preload;
  if (!server.running) server.environment = CommonEnvironment(config, settings_.facts, settings_.environment);
  server.ignored_signals = IgnoredSignals();
  ForkServer::Events events;
  events.on_started = [this](ForkServer::Ticket ticket, Child child) { OnForked(ticket, std::move(child)); };
  events.on_ended = [this](const absl::Status& why, const std::vector<ForkServer::Ticket>& not_started) {
    OnForkServerEnded(why, not_started);
  };
  absl::StatusOr<std::unique_ptr<ForkServer>> started = ForkServer::Start(std::move(server), loop_, std::move(events));
  if (!started.ok()) return OnForkServerEnded(started.status(), {});
  fork_server_ = *std::move(started);
}

void WorkerGroup::OnForked(ForkServer::Ticket ticket, Child child) {
  const auto found = starting_.find(ticket);
  if (found == starting_.end()) {
    kill(child.pid, SIGKILL);  // forgotten, waiting at its gate; ReapDeadOrphans reaps it
    return;
  }
  Launch launch = std::move(found->second);
  starting_.erase(found);
  const int32_t rank = launch.local_rank;
  if (absl::Status status = OnCreated(std::move(child), std::move(launch)); !status.ok()) {
    ReportLater({WorkerEnd{rank, StartFailure(rank, status), std::nullopt}});
  }
  if (all_started()) events_.on_all_started();
}

void WorkerGroup::OnForkServerEnded(const absl::Status& why, const std::vector<ForkServer::Ticket>& not_started) {
  // Destroy the fork server from the loop, not from within its own callback.
  loop_->Post([ended = std::shared_ptr<ForkServer>(std::move(fork_server_))] {});
  if (why.ok()) {
    Log(LogLevel::kInfo, "--preload: no installed module is imported at the beginning of the script");
  } else {
    Log(LogLevel::kWarning, absl::StrCat("--preload: ", why.message(), "; each worker ",
                                         settings_.config->command.python ? "imports" : "loads", " for itself"));
  }
  std::vector<WorkerEnd> ends;
  for (const ForkServer::Ticket ticket : not_started) {
    const auto found = starting_.find(ticket);
    if (found == starting_.end()) continue;
    const int32_t rank = found->second.local_rank;
    const absl::Status status = Spawn(std::move(found->second));
    starting_.erase(found);
    if (!status.ok()) ends.push_back({rank, StartFailure(rank, status), std::nullopt});
  }
  if (!ends.empty()) return events_.on_ended(ends);
  if (!not_started.empty()) events_.on_all_started();
}

void WorkerGroup::SignalStarting(int signal, bool stops, const LocalRanks& ranks) {
  std::vector<WorkerEnd> ends;
  const auto cancelled = [&](int32_t rank) {
    WorkerFailure failure = NewFailure(rank);
    failure.set_signal(signal);
    ends.push_back({rank, std::move(failure), std::nullopt});
  };
  for (const int32_t rank : ranks) {
    if (stops && opening_.erase(rank) > 0) cancelled(rank);
    if (const auto found = opening_.find(rank); found != opening_.end()) found->second.push_back(signal);
  }
  for (auto it = starting_.begin(); it != starting_.end();) {
    Launch& launch = it->second;
    if (std::find(ranks.begin(), ranks.end(), launch.local_rank) == ranks.end()) {
      ++it;
      continue;
    }
    if (!stops || !fork_server_->Cancel(it->first)) {
      launch.signals.push_back(signal);
      ++it;
      continue;
    }
    cancelled(launch.local_rank);
    it = starting_.erase(it);
  }
  ReportLater(std::move(ends));
}

void WorkerGroup::ReportLater(std::vector<WorkerEnd> ends) {
  if (ends.empty()) return;
  loop_->Post([this, alive = alive_, ends = std::move(ends)] {
    if (*alive) events_.on_ended(ends);
  });
}

void WorkerGroup::Signal(int signal, const LocalRanks& ranks) {
  const std::vector<int>& warnings = settings_.config->warning_signals;
  const bool stops = std::find(warnings.begin(), warnings.end(), signal) == warnings.end();
  for (const int32_t rank : ranks) {
    const auto found = workers_.find(pids_[rank]);
    if (found == workers_.end()) continue;
    // A warning must not kill a worker that is still loading its libraries.
    const bool survives = SurvivesSignal(found->first, signal);
    if (stops) {
      found->second.signalled = true;
      watch_->Signal(found->first, signal);
      if (!survives) continue;  // the watch signals what it leaves behind
    } else if (survives) {
      kill(found->first, signal);
    }
    // A shell acts on a signal only after the program that it runs has ended.
    for (const pid_t program : ProgramsBelowShell(found->first)) {
      if (stops || SurvivesSignal(program, signal)) kill(program, signal);
    }
  }
  SignalStarting(signal, stops, ranks);
}

void WorkerGroup::NotifyStop(const LocalRanks& ranks, SteadyTime killed_at, const std::string& reason) {
  if (link_ == nullptr) return;
  for (const int32_t rank : ranks) link_->NotifyStop(pids_[rank], killed_at, reason);
}

void WorkerGroup::Tell(const LocalRanks& ranks, const worker_contract::LauncherLinkMessage& line) {
  if (link_ == nullptr) return;
  for (const int32_t rank : ranks) link_->Tell(pids_[rank], line);
}

void WorkerGroup::Reform(const rendezvous::Assignment& assignment, const LocalRanks& ranks) {
  assignment_ = assignment;
  if (link_ == nullptr) return;
  for (const int32_t rank : ranks) {
    link_->SetRank(pids_[rank], assignment.base_rank() + rank);
    link_->Tell(pids_[rank], ReformLine(assignment, rank, settings_.config->slots));
  }
}

void WorkerGroup::OnLinkLine(pid_t pid, worker_contract::WorkerLinkMessage line) {
  const auto found = workers_.find(pid);
  if (found == workers_.end()) return;
  const Worker& worker = found->second;
  if (auto* failed = std::get_if<worker_contract::LinkFailed>(&line)) {
    WorkerFailure failure = NewFailure(worker.local_rank);
    failure.set_pid(pid);
    *failure.mutable_ran_for() = FromDuration(SteadyNow() - worker.started);
    failure.set_message(OneLine(failed->message, worker_contract::kMaxReasonBytes));
    return events_.on_link(worker.local_rank, GroupBroken{failed->round, std::move(failure)});
  }
  std::visit(
      [&](auto& value) {
        if constexpr (std::is_constructible_v<LinkEvent, decltype(value)>) events_.on_link(worker.local_rank, value);
      },
      line);
}

void WorkerGroup::OnLinkClosed(pid_t pid) {
  const auto found = workers_.find(pid);
  if (found != workers_.end()) events_.on_link(found->second.local_rank, LinkClosed{});
}

void WorkerGroup::Kill(const LocalRanks& ranks) {
  for (const int32_t rank : ranks) {
    const auto found = workers_.find(pids_[rank]);
    if (found == workers_.end()) continue;
    found->second.signalled = true;
    watch_->SignalGroup(found->first, SIGKILL);
  }
  SignalStarting(SIGKILL, true, ranks);
}

std::optional<WorkerFailure> WorkerGroup::DescribeStuck(int32_t local_rank, absl::string_view why) const {
  const auto found = workers_.find(pids_[local_rank]);
  if (found == workers_.end()) return std::nullopt;
  WorkerFailure failure = NewFailure(local_rank);
  failure.set_pid(found->first);
  failure.set_signal(SIGKILL);
  failure.set_restartable(false);
  *failure.mutable_ran_for() = FromDuration(SteadyNow() - found->second.started);
  const std::string where = ReadSmallFile(absl::StrCat("/proc/", found->first, "/wchan"));
  failure.set_message(absl::StrCat(why, "; state ", StatusField(StatusOf(found->first), "State"),
                                   where.empty() || where == "0" ? "" : absl::StrCat(", in ", where)));
  return failure;
}

void WorkerGroup::KillHung(int32_t local_rank, const std::string& message, const std::string& traceback) {
  const auto found = workers_.find(pids_[local_rank]);
  if (found == workers_.end()) return;
  found->second.hung = message;
  found->second.hung_at = traceback;
  Kill({local_rank});
}

void WorkerGroup::KillFinished(int32_t local_rank) {
  const auto found = workers_.find(pids_[local_rank]);
  if (found == workers_.end()) return;
  found->second.finished = true;
  Kill({local_rank});
}

void WorkerGroup::ReadReports() {
  if (link_ != nullptr) link_->ReadReports();
}

pid_t WorkerGroup::ReporterOf(int32_t local_rank) const {
  const pid_t pid = pids_[local_rank];
  if (workers_.count(pid) == 0) return 0;
  return link_ == nullptr ? pid : link_->ReporterOf(pid);
}

std::vector<pid_t> WorkerGroup::known_pids() const {
  std::vector<pid_t> pids = watch_->pids();
  if (fork_server_ != nullptr) pids.push_back(fork_server_->pid());
  return pids;
}

WorkerFailure WorkerGroup::NewFailure(int32_t local_rank) const {
  WorkerFailure failure = rendezvous::NewFailure();
  failure.set_host(settings_.host);
  failure.set_local_rank(local_rank);
  failure.set_rank(assignment_.base_rank() + local_rank);
  *failure.mutable_at() = FromTime(absl::Now());
  return failure;
}

WorkerEnd WorkerGroup::Describe(const ProcessEnd& end, const Worker& worker,
                                const std::optional<ReportedProgress>& progress) const {
  WorkerEnd result{worker.local_rank, std::nullopt, std::nullopt};
  if (end.ok() || worker.finished) return result;
  const std::string report = worker.error_file.Read();
  const WorkerError error = ParseErrorFile(report);
  WorkerFailure failure = NewFailure(worker.local_rank);
  failure.set_pid(end.pid);
  if (end.kind == ProcessEnd::Kind::kSignaled) {
    failure.set_signal(end.code);
  } else {
    failure.set_exit_code(end.code);
  }
  failure.set_restartable(failure.exit_code() != worker_contract::kExitNonRestartable);
  *failure.mutable_ran_for() = FromDuration(SteadyNow() - worker.started);
  if (progress) {
    failure.set_progress(DescribeProgress(*progress, SteadyNow()));
    failure.set_step(progress->progress.step);
  }
  failure.set_message(error.message);
  failure.set_traceback(error.traceback);
  if (failure.message().empty() && !worker.hung.empty()) {
    failure.set_message(worker.hung);
    failure.set_traceback(worker.hung_at);
  }
  if (!settings_.config->options.output.log_dir.empty() && !error.message.empty())
    failure.set_error_file(worker.error_file.path());
  if (!worker.signalled) {
    ExplainEnd({worker.error_tail ? worker.error_tail() : "", OomEvidence(worker.oom_before, SampleOom()), end.dumped},
               &failure);
    if (report.empty()) ExplainNoErrorFile(worker.error_file.WhyEmpty(), &failure);
  }
  result.failure = std::move(failure);
  result.raised_at = error.raised_at;
  return result;
}

void WorkerGroup::OnProcessesEnded(const std::vector<ProcessEnd>& ends) {
  std::vector<WorkerEnd> result;
  for (const ProcessEnd& end : ends) {
    const auto found = workers_.find(end.pid);
    if (found == workers_.end()) continue;  // abandoned in an earlier round
    std::optional<ReportedProgress> progress;
    if (link_ != nullptr) progress = link_->Remove(end.pid);
    if (const std::optional<int> error = found->second.gate.TakeError()) {
      const int32_t rank = found->second.local_rank;
      result.push_back({rank, StartFailure(rank, ExplainExecError(program_, *error)), std::nullopt});
    } else {
      result.push_back(Describe(end, found->second, progress));
    }
    workers_.erase(found);
  }
  if (!result.empty()) events_.on_ended(result);
}

}  // namespace ddprun::launcher
