#include "launcher/worker_group.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/core/error_file.h"
#include "launcher/core/rank_environment.h"
#include "launcher/os/companion_file.h"
#include "launcher/os/resolve_program.h"
#include "launcher/os/spawn.h"
#include "worker_contract/exit_codes.h"

namespace ddprun::launcher {

using rendezvous::WorkerFailure;

namespace {

absl::StatusOr<std::string> FindPortGuard() {
  absl::StatusOr<std::string> file = CompanionFile("libddprun_ports.so");
  if (!file.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("can't enforce --port-range: ", file.status().message(),
                                                   "; install it there, or leave out --port-range"));
  }
  if (file->find_first_of(" :") != std::string::npos) {
    return absl::InvalidArgumentError(absl::StrCat("can't enforce --port-range: ", *file,
                                                   " can't be preloaded, because its path has a space or a colon; "
                                                   "install ddprun elsewhere, or leave out --port-range"));
  }
  return file;
}

}  // namespace

WorkerGroup::WorkerGroup(Settings settings, WorkerOutput output, OnEnded on_ended)
    : settings_(std::move(settings)),
      output_(std::move(output)),
      on_ended_(std::move(on_ended)),
      pids_(settings_.config->slots) {}

absl::StatusOr<std::unique_ptr<WorkerGroup>> WorkerGroup::Create(Settings settings, EventLoop* loop, LogPump* pump,
                                                                 OnEnded on_ended) {
  absl::StatusOr<WorkerOutput> output = WorkerOutput::Create(settings.config, settings.host, pump);
  if (!output.ok()) return output.status();
  std::unique_ptr<WorkerGroup> group(new WorkerGroup(std::move(settings), *std::move(output), std::move(on_ended)));
  absl::StatusOr<std::unique_ptr<ChildWatch>> watch = ChildWatch::Create(
      loop, [group = group.get()](const std::vector<ProcessEnd>& ends) { group->OnProcessesEnded(ends); });
  if (!watch.ok()) return watch.status();
  group->watch_ = *std::move(watch);
  if (group->settings_.config->port_range) {
    absl::StatusOr<std::string> guard = FindPortGuard();
    if (!guard.ok()) return guard.status();
    group->port_guard_ = *std::move(guard);
  }
  return group;
}

std::optional<WorkerGroup::StartError> WorkerGroup::Start(const rendezvous::Assignment& assignment,
                                                          const LocalRanks& ranks) {
  assignment_ = assignment;
  for (const int32_t rank : ranks) workers_.erase(std::exchange(pids_[rank], 0));
  const OomSample oom_before = SampleOom();
  for (auto rank = ranks.begin(); rank != ranks.end(); ++rank) {
    const absl::Status status = StartWorker(assignment, *rank, oom_before);
    if (status.ok()) continue;
    StartError error{LocalRanks(rank, ranks.end()), NewFailure(*rank)};
    error.failure.exit_code = ExitCodeOfStartError(status);
    // Another attempt finds more memory or processes, perhaps, but not another program.
    error.failure.restartable = absl::IsResourceExhausted(status);
    error.failure.message = std::string(status.message());
    return error;
  }
  return std::nullopt;
}

absl::StatusOr<std::string> WorkerGroup::Program() {
  if (!program_.empty()) return program_;
  const WorkerCommand& command = settings_.config->command;
  const char* path = getenv("PATH");
  absl::Status first_error;
  for (const std::string& name : command.programs) {
    absl::StatusOr<std::string> program = ResolveProgram(name, path == nullptr ? "/usr/bin:/bin" : path);
    if (program.ok()) {
      if (!command.script.empty() && access(command.script.c_str(), F_OK) != 0) {
        return absl::NotFoundError(absl::StrCat("no such script: ", command.script));
      }
      program_ = *program;
      return program_;
    }
    if (first_error.ok()) first_error = program.status();
  }
  return first_error;
}

absl::Status WorkerGroup::StartWorker(const rendezvous::Assignment& assignment, int32_t local_rank,
                                      const OomSample& oom_before) {
  const LaunchConfig& config = *settings_.config;
  absl::StatusOr<std::string> program = Program();
  if (!program.ok()) return program.status();
  absl::StatusOr<WorkerStreams> streams =
      output_.Open(assignment.restart_count, local_rank, assignment.base_rank + local_rank);
  if (!streams.ok()) return streams.status();
  SpawnRequest request;
  request.program = *program;
  request.argv = config.command.arguments;
  request.argv.insert(request.argv.begin(), *program);
  request.environment = RankEnvironment(
      assignment, local_rank,
      GroupSettings{config.job_id, settings_.launcher_id, config.role, config.slots, config.settings.max_restarts,
                    config.devices, config.signals_to_handle, config.shutdown_timeout, job_end_,
                    settings_.gloo_interface, config.port_range, config.endpoint.port, port_guard_},
      config.no_files ? "" : streams->error_file.path(), settings_.environment);
  request.stdout_fd = streams->out.get();
  request.stderr_fd = streams->err.get();
  // A batch system that warns does so to every process: a worker that does not care for it is to survive.
  if (config.batch) request.ignored_signals = config.warning_signals;
  absl::StatusOr<Child> child = Spawn(request);
  if (!child.ok()) return child.status();
  const pid_t pid = child->pid;
  if (absl::Status status = watch_->Watch(*std::move(child)); !status.ok()) return status;
  pids_[local_rank] = pid;
  workers_.insert_or_assign(pid, Worker{local_rank, SteadyNow(), std::move(streams->error_file), oom_before});
  return absl::OkStatus();
}

void WorkerGroup::Signal(int signal, const LocalRanks& ranks) {
  const std::vector<int>& warnings = settings_.config->warning_signals;
  const bool stops = std::find(warnings.begin(), warnings.end(), signal) == warnings.end();
  for (const int32_t rank : ranks) {
    const auto found = workers_.find(pids_[rank]);
    if (found == workers_.end()) continue;
    if (stops) found->second.signalled = true;
    watch_->Signal(found->first, signal);
  }
}

void WorkerGroup::Kill(const LocalRanks& ranks) {
  for (const int32_t rank : ranks) {
    const auto found = workers_.find(pids_[rank]);
    if (found == workers_.end()) continue;
    found->second.signalled = true;
    watch_->SignalGroup(found->first, SIGKILL);
  }
}

WorkerFailure WorkerGroup::NewFailure(int32_t local_rank) const {
  WorkerFailure failure;
  failure.host = settings_.host;
  failure.local_rank = local_rank;
  failure.rank = assignment_.base_rank + local_rank;
  failure.at = absl::Now();
  return failure;
}

WorkerEnd WorkerGroup::Describe(const ProcessEnd& end, const Worker& worker) const {
  WorkerEnd result{worker.local_rank, std::nullopt, std::nullopt};
  if (end.ok()) return result;
  const WorkerError error = ParseErrorFile(worker.error_file.Read());
  WorkerFailure failure = NewFailure(worker.local_rank);
  failure.pid = end.pid;
  (end.kind == ProcessEnd::Kind::kSignaled ? failure.signal : failure.exit_code) = end.code;
  failure.restartable = failure.exit_code != worker_contract::kNoUseRestarting;
  failure.ran_for = SteadyNow() - worker.started;
  failure.message = error.message;
  failure.traceback = error.traceback;
  if (!settings_.config->log_dir.empty() && !error.message.empty()) failure.error_file = worker.error_file.path();
  if (failure.signal == SIGKILL && !worker.signalled) {
    const std::string killed = OomEvidence(worker.oom_before, SampleOom());
    failure.oom_killed = !killed.empty();
    if (failure.message.empty()) failure.message = killed;
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
    result.push_back(Describe(end, found->second));
    workers_.erase(found);
  }
  if (!result.empty()) on_ended_(result);
}

}  // namespace ddprun::launcher
