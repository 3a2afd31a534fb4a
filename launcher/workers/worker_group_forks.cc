// Workers that a fork server starts (--preload).
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "launcher/fork_server/links_worker_runtime.h"
#include "launcher/process/proc_files.h"
#include "launcher/workers/worker_group.h"

namespace ddprun::launcher {
namespace {

bool HasMacro(const WorkerCommand& command) {
  return std::any_of(command.arguments.begin(), command.arguments.end(),
                     [](const std::string& argument) { return absl::StrContains(argument, kLocalRankMacro); });
}

}  // namespace

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
  if (!server.running) server.environment = CommonEnvironment(CommonSettings(), settings_.environment);
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

}  // namespace ddprun::launcher
