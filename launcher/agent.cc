#include "launcher/agent.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/secret.h"
#include "base/signal_name.h"
#include "launcher/cluster/slurm_text.h"
#include "launcher/interpreter.h"
#include "launcher/os/background_call.h"
#include "launcher/os/error_file.h"
#include "launcher/os/net.h"
#include "launcher/os/orphan_sweeper.h"
#include "launcher/os/resolve_program.h"
#include "launcher/report/error_file_format.h"
#include "launcher/report/failure_summary.h"
#include "rendezvous/core/beat_plan.h"
#include "rendezvous/core/fenced_nodes.h"
#include "worker_contract/environment.h"

extern char** environ;

namespace ddprun::launcher {
namespace {

// How long the other launchers may take to fetch the verdict from a server hosted here. Covers a launcher that briefly
// lost its network: it still counts as connected for the fence time.
absl::Duration Linger(const rendezvous::JobSettings& settings) {
  return std::clamp(rendezvous::FenceTime(rendezvous::LongestTimeout(settings)), absl::Seconds(2), absl::Seconds(30));
}
// Log a warning when the launcher stays longer than this.
constexpr absl::Duration kLogStayAfter = absl::Seconds(1);
// Interval between lookups of the endpoint's name, if it may become resolvable late.
constexpr absl::Duration kNameInterval = absl::Seconds(1);
// Limit for reading output that workers left in their pipes.
constexpr absl::Duration kDrain = absl::Seconds(2);
// Limit for orphans to exit after SIGKILL.
constexpr absl::Duration kSweepTimeout = absl::Seconds(2);
// Limit for a batch system's tool to answer.
constexpr absl::Duration kToolTimeout = absl::Seconds(10);
// Jobs with more nodes do not query squeue, to avoid overloading slurmctld.
constexpr int kMaxNodesForQueue = 64;

std::vector<std::string> Environment() {
  std::vector<std::string> result;
  for (char** entry = environ; *entry != nullptr; ++entry) result.push_back(*entry);
  return result;
}

// If an outer launcher started this one as a worker, reports the root cause to it in its error file, as torchrun does.
void WriteOuterErrorFile(const rendezvous::Verdict& verdict) {
  const char* path = getenv(worker_contract::kErrorFile);
  if (path == nullptr || *path == '\0' || !verdict.first_cause) return;
  const absl::Status status = WriteErrorFile(path, FormatErrorFile(*verdict.first_cause));
  if (!status.ok()) Log(LogLevel::kWarning, status.message());
}

}  // namespace

Agent::Agent(Settings settings, std::unique_ptr<SignalSource> signals)
    : settings_(std::move(settings)),
      host_(settings_.config.host.empty() ? Hostname() : settings_.config.host),
      signals_(std::move(signals)) {}

Agent::~Agent() {
  settings_.guard->Unwatch();
  link_ = nullptr;
}

int Agent::Run() {
  if (absl::Status status = SetUp(); !status.ok()) {
    Log(LogLevel::kError, status.message());
    if (exit_) return exit_->code;
    return absl::IsInvalidArgument(status) ? 2 : 1;
  }
  loop_->Run();
  return Finish();
}

absl::Status Agent::SetUp() {
  const LaunchConfig& config = settings_.config;
  absl::StatusOr<std::unique_ptr<EventLoop>> loop = EventLoop::Create();
  if (!loop.ok()) return loop.status();
  loop_ = *std::move(loop);
  if (absl::Status status = signals_->Attach(loop_.get(), [this](const ReceivedSignal& s) { OnSignal(s); });
      !status.ok()) {
    return status;
  }
  if (absl::Status status = settings_.guard->Watch(loop_.get()); !status.ok()) return status;
  if (absl::Status status = FindAddresses(); !status.ok()) return status;
  if (config.server_place != ServerPlace::kInProcess) {
    Log(LogLevel::kInfo,
        absl::StrCat("this node is ", host_, ", address ", place_.address,
                     config.local_addr.empty() ? " (of the route to the rendezvous server; --local-addr"
                                                 " overrides it)"
                                               : " (--local-addr)"));
  }

  AgentSettings agent;
  agent.join.job_id = config.job_id;
  agent.join.node_id = settings_.launcher_id;
  agent.join.session_secret = RandomSecret();
  agent.join.host = host_;
  agent.join.address = place_.master;
  agent.join.slots = config.slots;
  agent.join.role = config.role;
  agent.join.node_rank = config.node_rank;
  agent.join.topology = config.topology;
  agent.join.settings = config.settings;
  agent.server = RendezvousLink::ServerName(config);
  agent.expected_hosts = config.expected_hosts;
  agent.shutdown_timeout = config.shutdown_timeout;
  agent.reconnect_timeout = config.reconnect_timeout;
  agent.batch = config.batch;
  agent.replaced = config.replaced;
  agent.warning_signals = config.warning_signals;
  machine_ = std::make_unique<AgentMachine>(std::move(agent), SteadyNow());
  WatchHangs();
  progress_ = std::make_unique<ProgressDisplay>(config.output.progress,
                                                [this] { return machine_->state() == AgentMachine::State::kRunning; });
  loop_->SetTimer(
      [this] {
        return std::min({machine_->NextDeadline(), sweep_until_, hangs_->NextDeadline(), progress_->NextDeadline(),
                         reports_.NextDeadline(), store_->NextDeadline()});
      },
      [this](SteadyTime now) { OnTimer(now); });

  RoundStore::Events store;
  store.on_ranks_joined = [this](int joined) {
    Step([&](auto& m, auto now, auto* e) { m.OnRanksJoined(joined, now, e); });
  };
  store.on_registering = [this] { Step([](auto& m, auto now, auto* e) { m.OnRegistering(now, e); }); };
  store.on_store_reached = [this](const absl::Status& status) {
    Step([&](auto& m, auto now, auto* e) { m.OnStoreReached(status, now, e); });
  };
  store.on_long_wait = [this](const std::string& text) { Do(effect::Print{LogLevel::kWarning, text}); };
  store_ = std::make_unique<RoundStore>(&config, place_, host_, loop_.get(), std::move(store));

  const char* inherited_id = getenv(worker_contract::kLauncherId);
  WorkerGroup::Settings group{&config,
                              settings_.launcher_id,
                              LauncherIdForWorkers(inherited_id == nullptr ? "" : inherited_id, settings_.launcher_id),
                              host_,
                              Environment(),
                              config.settings.max_nodes > 1 ? InterfaceOf(place_.address) : ""};
  WorkerGroup::Events events;
  events.on_ended = [this](const std::vector<WorkerEnd>& ends) {
    // Read pending signals first, so that a signal sent to both workers and launcher is reported as the cause.
    signals_->ReadAll();
    for (const WorkerEnd& end : ends) {
      hangs_->OnEnded(end.local_rank);
      progress_->OnEnded(end.local_rank);
    }
    Step([&](auto& m, auto now, auto* e) { m.OnWorkersEnded(ends, now, e); });
  };
  events.on_link = [this](int32_t local_rank, const LinkEvent& event) {
    Step([&](auto& m, auto now, auto* e) { m.OnLink(local_rank, event, now, e); });
  };
  events.on_progress = [this](int32_t local_rank, const ReportedProgress& progress) {
    hangs_->OnProgress(local_rank, progress);
    progress_->OnProgress(local_rank, progress);
    reports_.OnProgress(local_rank, progress.progress, progress.at);
  };
  events.may_start = [this] { return machine_->MayStartWorkers(SteadyNow()); };
  events.on_all_started = [this] {
    ReapDeadOrphans(KnownChildren());
    store_->Register(workers_->pids());
  };
  events.on_start_failed = [this](const WorkerGroup::StartError& error) {
    Step([&](auto& m, auto now, auto* e) { m.OnSpawnFailed(error.not_started, error.failure, now, e); });
  };
  absl::StatusOr<std::unique_ptr<WorkerGroup>> workers =
      WorkerGroup::Create(std::move(group), loop_.get(), &pump_, std::move(events));
  if (!workers.ok()) return workers.status();
  workers_ = *std::move(workers);

  QueryEndTime();
  Step([](auto& m, auto now, auto* e) { m.Start(now, e); });
  absl::StatusOr<std::unique_ptr<RendezvousLink>> link = RendezvousLink::Open(
      &config, place_, loop_.get(), [this](const rendezvous::ClientEvent& event) { Handle(event); });
  if (!link.ok()) return link.status();
  link_ = *std::move(link);
  machine_->OnServing(link_->serving());
  return absl::OkStatus();
}

absl::Status Agent::FindAddresses() {
  const LaunchConfig& config = settings_.config;
  const absl::Duration patience = config.endpoint_appears_late ? config.settings.join_timeout : absl::ZeroDuration();
  const SteadyTime give_up = SteadyNow() + patience;
  for (bool first = true;; first = false) {
    std::optional<absl::StatusOr<HostAddresses>> found;
    {
      // The thread may outlive this object, so it owns a copy of the configuration.
      const BackgroundCall<absl::StatusOr<HostAddresses>> look_up(
          loop_.get(), [config] { return LookUpHostAddresses(config); },
          [&](absl::StatusOr<HostAddresses> result) {
            found = std::move(result);
            loop_->Quit();
          });
      loop_->Run();
    }
    if (exit_) {
      return absl::CancelledError(absl::StrCat("stopped while looking up the address of ", config.endpoint.host));
    }
    if (found->ok()) {
      place_ = **std::move(found);
      return absl::OkStatus();
    }
    if (!config.endpoint_appears_late) return absl::InvalidArgumentError(found->status().message());
    if (SteadyNow() >= give_up) return absl::UnavailableError(found->status().message());
    if (first) {
      Log(LogLevel::kWarning,
          absl::StrCat(found->status().message(), "; trying again for ", absl::FormatDuration(patience)));
    }
    const SteadyTime next = SteadyNow() + kNameInterval;
    loop_->SetTimer([next] { return next; }, [this](SteadyTime) { loop_->Quit(); });
    loop_->Run();
    loop_->SetTimer([] { return SteadyTime::InfiniteFuture(); }, [](SteadyTime) {});
    if (exit_) {
      return absl::CancelledError(
          absl::StrCat("stopped while waiting for ", config.endpoint.host, " to have an address"));
    }
  }
}

void Agent::Handle(const rendezvous::ClientEvent& event) {
  if (const auto* connected = std::get_if<rendezvous::Connected>(&event)) {
    return Step([&](auto& m, auto now, auto* e) { m.OnConnected(now, e, connected->leader); });
  }
  if (const auto* message = std::get_if<rendezvous::ServerMessage>(&event)) {
    if (const auto* welcome = std::get_if<rendezvous::Welcome>(message)) {
      may_take_over_ = welcome->by_launcher;
    }
    return Step([&](auto& m, auto now, auto* e) { m.OnServerMessage(*message, now, e); });
  }
  const auto& lost = std::get<rendezvous::Disconnected>(event);
  Step([&](auto& m, auto now, auto* e) { m.OnDisconnected(lost.reason, lost.permanent, lost.refused, now, e); });
  if (!lost.permanent && may_take_over_ && !exit_) {
    link_->TakeOver();
    machine_->OnServing(link_->serving());
  }
}

void Agent::OnSignal(const ReceivedSignal& signal) {
  if (machine_ == nullptr) {
    // Nothing has started yet, so there are no workers to warn or stop.
    const std::vector<int>& stopping = settings_.config.signals_to_handle;
    const bool stops = std::find(stopping.begin(), stopping.end(), signal.number) != stopping.end();
    if (stops) Do(effect::Exit{128 + signal.number, std::nullopt, {}});
    return;
  }
  if (signal.number == SIGCHLD) {
    if (!sweeping()) {
      // A worker of the fork server may exit before its pid is known here.
      if (workers_->all_started()) ReapDeadOrphans(KnownChildren());
      return;
    }
    ContinueSweep();
    return ExecutePending();
  }
  if (staying_) {
    const auto& warnings = settings_.config.warning_signals;
    const bool stops = std::find(warnings.begin(), warnings.end(), signal.number) == warnings.end();
    // A batch system signals all nodes at once, and the other launchers may still need the server while they stop.
    if (stops && !(settings_.config.batch && signal.FromSlurm())) link_->StopLingering();
    return;
  }
  Signal told;
  told.number = signal.number;
  told.from_batch_system = settings_.config.batch && signal.FromSlurm();
  told.text = told.from_batch_system ? absl::StrCat(SignalName(signal.number), " from SLURM") : signal.Text();
  if (end_time_) told.time_left = *end_time_ - absl::Now();
  Step([&](auto& m, auto now, auto* e) { m.OnSignal(told, now, e); });
}

void Agent::WatchHangs() {
  HangMonitor::Events events;
  events.workers_running = [this] { return machine_->state() == AgentMachine::State::kRunning; };
  events.process_of = [this](int32_t local_rank) { return workers_->ReporterOf(local_rank); };
  events.read_reports = [this] { workers_->ReadReports(); };
  events.warn = [this](const std::string& line) { Do(effect::Print{LogLevel::kWarning, line}); };
  events.print = [this](const std::string& lines) { status_line_.Around([&] { LogVerbatim(lines); }); };
  events.kill = [this](int32_t local_rank, const std::string& message, const std::string& traceback) {
    workers_->KillHung(local_rank, message, traceback);
  };
  events.kill_finished = [this](int32_t local_rank) { workers_->KillFinished(local_rank); };
  hangs_ = std::make_unique<HangMonitor>(settings_.config.hang, loop_.get(), std::move(events));
}

void Agent::QueryEndTime() {
  const LaunchConfig& config = settings_.config;
  if (!config.batch) return;
  const auto note = [this](absl::Time end) {
    end_time_ = end;
    workers_->SetJobEnd(end);
  };
  if (config.batch->end_time) return note(*config.batch->end_time);
  if (config.settings.max_nodes > kMaxNodesForQueue) return;
  absl::StatusOr<std::string> squeue = ResolveProgram("squeue", SearchPath());
  if (!squeue.ok()) return;
  SpawnRequest request;
  request.program = *squeue;
  request.argv = {*squeue, "-h", "-j", config.batch->job, "-o", "%A %e %l"};
  request.environment = Environment();
  request.environment.push_back("SLURM_TIME_FORMAT=standard");
  absl::StatusOr<std::unique_ptr<Command>> command =
      Command::Run(loop_.get(), request, kToolTimeout, [this, note](const std::string& answer) {
        const std::optional<absl::Time> end = ReadEndTime(answer, settings_.config.batch->job, absl::LocalTimeZone());
        if (end) note(*end);
      });
  // The end time is optional: not a reason to fail.
  if (command.ok()) end_time_command_ = *std::move(command);
}

template <typename Call>
void Agent::Step(Call call) {
  AgentMachine::Effects effects;
  call(*machine_, SteadyNow(), &effects);
  if (const SteadyTime until = machine_->WorkersMayRunUntil(); until != guard_kills_at_) {
    guard_kills_at_ = until;
    settings_.guard->KillWorkersAt(until);
  }
  for (AgentEffect& effect : effects) {
    // Heartbeats are sent during a sweep too, or the server would count this node as lost. Their order relative to
    // other effects does not matter.
    const auto* const send = std::get_if<effect::Send>(&effect);
    const bool beat = send != nullptr && std::holds_alternative<rendezvous::Heartbeat>(send->message);
    if (beat && sweeping()) {
      Execute(effect);
    } else {
      pending_.push_back(std::move(effect));
    }
  }
  ExecutePending();
}

void Agent::ExecutePending() {
  // Executing an effect may lead to another Step: its effects are executed after the pending ones.
  if (executing_) return;
  executing_ = true;
  while (!pending_.empty() && !sweeping()) {
    const AgentEffect effect = std::move(pending_.front());
    pending_.pop_front();
    Execute(effect);
  }
  executing_ = false;
}

void Agent::OnTimer(SteadyTime now) {
  if (sweeping() && now >= sweep_until_) {
    ContinueSweep();
    ExecutePending();
  }
  if (now >= hangs_->NextDeadline()) hangs_->OnDeadline(now);
  if (now >= progress_->NextDeadline()) progress_->OnDeadline(now);
  store_->OnDeadline(now);
  if (const auto progress = reports_.Take(now)) link_->Send(*progress);
  if (now >= machine_->NextDeadline()) Step([](auto& m, auto at, auto* e) { m.OnDeadline(at, e); });
}

void Agent::Execute(const AgentEffect& effect) {
  std::visit([this](const auto& e) { Do(e); }, effect);
}

void Agent::Do(const effect::Send& send) { link_->Send(send.message); }

void Agent::Do(const effect::ResetConnection&) { link_->Reset(); }

void Agent::Do(const effect::OpenStore&) {
  const absl::StatusOr<RoundStore::Opened> opened = store_->Open();
  if (!opened.ok()) {
    const std::string reason(opened.status().message());
    return Step([&](auto& m, auto now, auto* e) { m.OnFatal(reason, now, e); });
  }
  if (!opened->note.empty()) {
    // With several nodes, this node's store may never be used by the others.
    const bool alone = settings_.config.server_place == ServerPlace::kInProcess;
    Do(effect::Print{alone ? LogLevel::kWarning : LogLevel::kInfo, opened->note});
  }
  Step([&](auto& m, auto now, auto* e) { m.OnStoreOpened(opened->store, now, e); });
}

void Agent::Do(const effect::SpawnWorkers& spawn) {
  round_started_ = SteadyNow();
  store_->BeginRound(spawn.assignment);
  hangs_->BeginRound(spawn.assignment, settings_.config.slots);
  progress_->BeginRound(spawn.assignment, settings_.config.slots);
  reports_.BeginRound(spawn.assignment.round);
  workers_->Start(spawn.assignment, spawn.ranks);
  if (workers_->all_started()) store_->Register(workers_->pids());
}

void Agent::Do(const effect::SignalWorkers& signal) { workers_->Signal(signal.signal, signal.ranks); }
void Agent::Do(const effect::NotifyStop& stop) { workers_->NotifyStop(stop.ranks, stop.killed_at, stop.reason); }
void Agent::Do(const effect::SendToWorkers& tell) { workers_->Tell(tell.ranks, tell.line); }

void Agent::Do(const effect::ReformWorkers& reform) {
  hangs_->BeginRound(reform.assignment, settings_.config.slots);
  progress_->BeginRound(reform.assignment, settings_.config.slots);
  reports_.BeginRound(reform.assignment.round);
  workers_->Reform(reform.assignment, reform.ranks);
}

void Agent::Do(const effect::KillWorkers& kill) { workers_->Kill(kill.ranks); }

void Agent::Do(const effect::SweepOrphans&) {
  sweep_until_ = SteadyNow() + kSweepTimeout;
  ContinueSweep();
}

void Agent::ContinueSweep() {
  worker_sessions_.insert(workers_->pids().begin(), workers_->pids().end());
  std::vector<pid_t> left = KillOrphans(KnownChildren(), settings_.config.keep_orphans ? &worker_sessions_ : nullptr);
  left.erase(std::remove_if(left.begin(), left.end(),
                            [&](pid_t pid) { return std::find(stuck_.begin(), stuck_.end(), pid) != stuck_.end(); }),
             left.end());
  const bool give_up = SteadyNow() >= sweep_until_;
  if (!left.empty() && !give_up) return;
  sweep_until_ = SteadyTime::InfiniteFuture();
  if (left.empty()) return;
  stuck_.insert(stuck_.end(), left.begin(), left.end());
  Do(effect::Print{LogLevel::kWarning,
                   absl::StrCat(left.size(), left.size() == 1 ? " process" : " processes",
                                " started by workers still alive after SIGKILL (uninterruptible?)")});
}

std::vector<pid_t> Agent::KnownChildren() const {
  std::vector<pid_t> known = workers_->known_pids();
  known.push_back(settings_.guard->pid());
  return known;
}

void Agent::Do(const effect::ReportMissingRanks&) {
  const std::string text = store_->MissingText(SteadyNow() - round_started_);
  if (!text.empty()) Do(effect::Print{LogLevel::kWarning, text});
}

void Agent::Do(const effect::Print& print) {
  status_line_.Around([&] { Log(print.level, print.text); });
}

void Agent::Do(const effect::ShowStatus& status) { status_line_.Show(status.text); }

void Agent::Do(const effect::Exit& exit) {
  exit_ = exit;
  loop_->Quit();
}

int Agent::Finish() {
  progress_->Hide();
  // Close the store first, for the other nodes; then print the workers' remaining output; then the failure summary.
  store_->Close();
  pump_.Drain(SteadyNow() + kDrain);
  if (exit_->verdict && !exit_->verdict->succeeded) {
    FailureReport report;
    report.entrypoint = settings_.config.entrypoint;
    report.verdict = *exit_->verdict;
    report.others = exit_->siblings;
    report.time_zone = absl::LocalTimeZone();
    report.interpreter = FindInterpreter(settings_.config);
    if (report.verdict.first_cause) report.hint = TorchHint(settings_.config, host_, *report.verdict.first_cause);
    // This node never got a round, and no worker failed: too few nodes joined.
    if (round_started_ == SteadyTime() && report.verdict.exit_code == 1 && settings_.config.settings.max_nodes > 1) {
      report.hint =
          absl::StrCat("start ddprun on the other nodes with the same --rdzv-endpoint=", ServersText(settings_.config),
                       " and --rdzv-id=", settings_.config.job_id);
    }
    LogVerbatim(FailureSummary(report));
    WriteOuterErrorFile(*exit_->verdict);
  }
  link_->Disconnect();
  if (link_->Hosts()) LingerForOthers();
  link_->Close();
  return exit_->code;
}

void Agent::LingerForOthers() {
  const SteadyTime now = SteadyNow();
  const SteadyTime deadline = now + Linger(settings_.config.settings);
  const SteadyTime leavers_deadline = now + settings_.config.shutdown_timeout;
  SteadyTime say_at = now + kLogStayAfter;
  loop_->SetTimer(
      [&] { return say_at; },
      [&](SteadyTime) {
        say_at = SteadyTime::InfiniteFuture();
        Log(LogLevel::kWarning,
            absl::StrCat("hosting the rendezvous server until the other launchers (", link_->Others(),
                         " connected) have received the end of the job and stopped their workers, for up to ",
                         absl::FormatDuration(std::max(deadline, leavers_deadline) - now),
                         "; press Ctrl-C or send a signal to exit at once"));
      });
  staying_ = true;
  const BackgroundCall<bool> wait(
      loop_.get(),
      [link = link_.get(), deadline, leavers_deadline] {
        link->LingerForOthers(deadline, leavers_deadline);
        return true;
      },
      [this](bool) { loop_->Quit(); });
  loop_->Run();
  loop_->SetTimer([] { return SteadyTime::InfiniteFuture(); }, [](SteadyTime) {});
}

}  // namespace ddprun::launcher
