#include "launcher/agent.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/process.h"
#include "base/secret.h"
#include "launcher/cluster/query_job_end.h"
#include "launcher/interpreter.h"
#include "launcher/io/error_file.h"
#include "launcher/io/event_loop.h"
#include "launcher/io/net.h"
#include "launcher/process/orphan_sweeper.h"
#include "launcher/process/spawn_process.h"
#include "launcher/report/error_file_format.h"
#include "launcher/report/explain_end.h"
#include "launcher/report/wait_text.h"
#include "rendezvous/core/beat_plan.h"
#include "rendezvous/core/fenced_nodes.h"
#include "worker_contract/environment.h"
#include "worker_contract/exit_codes.h"

namespace ddprun::launcher {
namespace {

// How long the other launchers may take to fetch the verdict from a server hosted here. Covers a launcher that briefly
// lost its network: it still counts as connected for the fence time.
absl::Duration Linger(const rendezvous::JobSettings& settings) {
  return std::clamp(rendezvous::FenceTime(rendezvous::LongestTimeout(settings)), absl::Seconds(2), absl::Seconds(30));
}
// Log a warning when the launcher stays longer than this.
constexpr absl::Duration kLogStayAfter = absl::Seconds(1);
// Limit for reading output that workers left in their pipes.
constexpr absl::Duration kDrain = absl::Seconds(2);

// If an outer launcher started this one as a worker, reports the root cause to it in its error file, as torchrun does.
void WriteOuterErrorFile(const rendezvous::Verdict& verdict) {
  const char* path = getenv(worker_contract::kErrorFile);
  if (path == nullptr || *path == '\0' || !verdict.has_first_cause()) return;
  const absl::Status status = WriteErrorFile(path, FormatErrorFile(verdict.first_cause()));
  if (!status.ok()) Log(LogLevel::kWarning, status.message());
}

}  // namespace

Agent::Agent(Settings settings, std::unique_ptr<SignalSource> signals)
    : settings_(std::move(settings)),
      host_(settings_.config.cluster.host ? settings_.config.cluster.host->value : Hostname()),
      signals_(std::move(signals)),
      sweep_(settings_.config.options.keep_orphans) {}

Agent::~Agent() {
  settings_.guard->Unwatch();
  link_ = nullptr;
}

int Agent::Run() {
  if (absl::Status status = SetUp(); !status.ok()) {
    Log(LogLevel::kError, status.message());
    if (exit_) return exit_->code;
    return absl::IsInvalidArgument(status) ? worker_contract::kExitUsage : worker_contract::kExitFailed;
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
  absl::StatusOr<HostAddresses> place = FindHostAddresses(config, loop_.get(), [this] { return exit_.has_value(); });
  if (!place.ok()) return place.status();
  place_ = *std::move(place);
  if (config.server_place != ServerPlace::kInProcess) {
    Log(LogLevel::kInfo, absl::StrCat("this node is ", host_, ", address ", place_.address,
                                      config.options.local_addr
                                          ? " (--local-addr)"
                                          : " (of the route to the rendezvous server; --local-addr overrides it)"));
  }

  machine_ = std::make_unique<AgentMachine>(MachineSettings(), SteadyNow());
  progress_ = MonitorProgress();
  store_ = CreateStore();
  if (absl::Status status = CreateWorkers(); !status.ok()) return status;
  timer_ = loop_->AddTimer(
      [this] {
        return std::min(
            {machine_->NextDeadline(), sweep_.deadline(), progress_->NextDeadline(), store_->NextDeadline()});
      },
      [this](SteadyTime now) { OnTimer(now); });
  end_time_query_ = QueryJobEnd(config, loop_.get(), OwnEnvironment(), [this](absl::Time end) {
    end_time_ = end;
    workers_->SetJobEnd(end);
  });
  Step(&AgentMachine::Start);
  absl::StatusOr<std::unique_ptr<RendezvousLink>> link = RendezvousLink::Open(
      &config, place_, loop_.get(), [this](const rendezvous::ClientEvent& event) { Handle(event); });
  if (!link.ok()) return link.status();
  link_ = *std::move(link);
  machine_->OnServing(link_->serving());
  return absl::OkStatus();
}

AgentSettings Agent::MachineSettings() const {
  const LaunchConfig& config = settings_.config;
  AgentSettings agent;
  agent.join.set_job_id(config.job_id);
  agent.join.set_node_id(settings_.launcher_id);
  agent.join.set_session_secret(RandomSecret());
  agent.join.set_host(host_);
  agent.join.set_address(place_.master);
  agent.join.set_slots(config.slots);
  agent.join.set_role(config.options.role);
  if (config.node_rank) agent.join.set_node_rank(*config.node_rank);
  if (config.cluster.topology) agent.join.set_topology(config.cluster.topology->value);
  *agent.join.mutable_settings() = config.settings;
  agent.server = RendezvousLink::ServerName(config);
  agent.expected_hosts = config.cluster.hosts;
  agent.shutdown_timeout = config.shutdown_timeout;
  agent.reconnect_timeout = config.options.rdzv_conf.reconnect_timeout;
  agent.batch = config.cluster.batch;
  agent.replaced = config.is_replaced();
  agent.warning_signals = config.warning_signals;
  return agent;
}

std::unique_ptr<RoundStore> Agent::CreateStore() {
  RoundStore::Events events;
  events.on_ranks_joined = [this](int joined) { Step(&AgentMachine::OnRanksJoined, joined); };
  events.on_registering = [this] { Step(&AgentMachine::OnRegistering); };
  events.on_store_reached = [this](const absl::Status& status) { Step(&AgentMachine::OnStoreReached, status); };
  events.on_long_wait = [this](const std::string& text) { Do(effect::Print{LogLevel::kWarning, text}); };
  return std::make_unique<RoundStore>(&settings_.config, place_, host_, loop_.get(), std::move(events));
}

absl::Status Agent::CreateWorkers() {
  const LaunchConfig& config = settings_.config;
  const char* inherited_id = getenv(worker_contract::kLauncherId);
  WorkerGroup::Settings group{&config, settings_.launcher_id, host_, OwnEnvironment(), {}};
  group.facts.launcher_ids = LauncherIdForWorkers(inherited_id == nullptr ? "" : inherited_id, settings_.launcher_id);
  if (config.settings.max_nodes() > 1) group.facts.gloo_interface = InterfaceOf(place_.address);
  WorkerGroup::Events events;
  events.on_ended = [this](const std::vector<WorkerEnd>& ends) {
    // Read pending signals first, so that a signal sent to both workers and launcher is reported as the cause.
    signals_->ReadAll();
    for (const WorkerEnd& end : ends) progress_->OnEnded(end.local_rank);
    Step(&AgentMachine::OnWorkersEnded, ends);
  };
  events.on_link = [this](int32_t local_rank, const LinkEvent& event) {
    Step(&AgentMachine::OnLink, local_rank, event);
  };
  events.on_progress = [this](int32_t local_rank, const ReportedProgress& progress) {
    progress_->OnProgress(local_rank, progress);
  };
  events.may_start = [this] { return machine_->MayStartWorkers(SteadyNow()); };
  events.on_all_started = [this] {
    ReapDeadOrphans(KnownChildren());
    store_->Register(workers_->pids());
  };
  events.on_start_failed = [this](const WorkerGroup::StartError& error) {
    Step(&AgentMachine::OnSpawnFailed, error.not_started, error.failure);
  };
  absl::StatusOr<std::unique_ptr<WorkerGroup>> workers =
      WorkerGroup::Create(std::move(group), loop_.get(), &pump_, std::move(events));
  if (!workers.ok()) return workers.status();
  workers_ = *std::move(workers);
  return absl::OkStatus();
}

void Agent::Handle(const rendezvous::ClientEvent& event) {
  if (const auto* connected = std::get_if<rendezvous::Connected>(&event)) {
    return Step(&AgentMachine::OnConnected, connected->leader);
  }
  if (const auto* message = std::get_if<rendezvous::ServerMessage>(&event)) {
    if (const auto* welcome = std::get_if<rendezvous::Welcome>(message)) {
      may_take_over_ = welcome->by_launcher();
    }
    return Step(&AgentMachine::OnServerMessage, *message);
  }
  const auto& lost = std::get<rendezvous::Disconnected>(event);
  Step(&AgentMachine::OnDisconnected, lost.reason, lost.permanent, lost.refused);
  if (!lost.permanent && may_take_over_ && !exit_) {
    link_->TakeOver();
    machine_->OnServing(link_->serving());
  }
}

void Agent::OnSignal(const ReceivedSignal& signal) {
  if (machine_ == nullptr) {
    // Nothing has started yet, so there are no workers to warn or stop.
    const std::vector<int>& stopping = settings_.config.options.signals_to_handle;
    const bool stops = std::find(stopping.begin(), stopping.end(), signal.number) != stopping.end();
    if (stops) Do(effect::Exit{worker_contract::ExitCodeOfSignal(signal.number), std::nullopt, {}});
    return;
  }
  if (signal.number == SIGCHLD) {
    if (!sweep_.running()) {
      // A worker of the fork server may exit before its pid is known here.
      if (workers_->all_started()) ReapDeadOrphans(KnownChildren());
      return;
    }
    ContinueSweep();
    return ExecutePending();
  }
  // `ddprun --hosts` signals all nodes at once, as SLURM does, so its first signal is not a second one where the job is
  // already ending because of it.
  const bool from_slurm = settings_.config.cluster.batch && signal.FromSlurm();
  const bool from_hosts = settings_.send_failure && signal.sender == getppid() && !std::exchange(signaled_, true);
  if (staying_) {
    const auto& warnings = settings_.config.warning_signals;
    const bool stops = std::find(warnings.begin(), warnings.end(), signal.number) == warnings.end();
    // The other launchers may still need the server while they stop.
    if (stops && !from_slurm && !from_hosts) link_->StopLingering();
    return;
  }
  Signal told;
  told.number = signal.number;
  told.from_batch_system = from_slurm || from_hosts;
  told.text = from_slurm ? absl::StrCat(SignalName(signal.number), " from SLURM") : signal.Text();
  if (end_time_) told.time_left = *end_time_ - absl::Now();
  Step(&AgentMachine::OnSignal, told);
}

std::unique_ptr<ProgressMonitor> Agent::MonitorProgress() {
  ProgressMonitor::Events events;
  events.workers_running = [this] { return machine_->state() == AgentMachine::State::kRunning; };
  events.process_of = [this](int32_t local_rank) { return workers_->ReporterOf(local_rank); };
  events.read_reports = [this] { workers_->ReadReports(); };
  events.warn = [this](const std::string& line) { Do(effect::Print{LogLevel::kWarning, line}); };
  events.print = [this](const std::string& lines) { terminal_.Around([&] { LogVerbatim(lines); }); };
  events.kill = [this](int32_t local_rank, const std::string& message, const std::string& traceback) {
    workers_->KillHung(local_rank, message, traceback);
  };
  events.kill_finished = [this](int32_t local_rank) { workers_->KillFinished(local_rank); };
  return std::make_unique<ProgressMonitor>(settings_.config, loop_.get(), &terminal_, std::move(events));
}

template <typename... Parameters, typename... Arguments>
void Agent::Step(void (AgentMachine::*method)(Parameters...), const Arguments&... arguments) {
  AgentMachine::Effects effects;
  (machine_.get()->*method)(arguments..., SteadyNow(), &effects);
  if (const SteadyTime until = machine_->WorkersMayRunUntil(); until != guard_kills_at_) {
    guard_kills_at_ = until;
    settings_.guard->KillWorkersAt(until);
  }
  for (AgentEffect& effect : effects) {
    // Heartbeats are sent during a sweep too, or the server would count this node as lost. Their order relative to
    // other effects does not matter.
    const auto* const send = std::get_if<effect::Send>(&effect);
    const bool beat = send != nullptr && std::holds_alternative<rendezvous::Heartbeat>(send->message);
    if (beat && sweep_.running()) {
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
  while (!pending_.empty() && !sweep_.running()) {
    const AgentEffect effect = std::move(pending_.front());
    pending_.pop_front();
    Execute(effect);
  }
  executing_ = false;
}

void Agent::OnTimer(SteadyTime now) {
  if (now >= sweep_.deadline()) {
    ContinueSweep();
    ExecutePending();
  }
  if (const auto report = progress_->OnDeadline(now)) link_->Send(*report);
  store_->OnDeadline(now);
  if (now >= machine_->NextDeadline()) Step(&AgentMachine::OnDeadline);
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
    return Step(&AgentMachine::OnFatal, reason);
  }
  if (!opened->note.empty()) {
    // With several nodes, this node's store may never be used by the others.
    const bool alone = settings_.config.server_place == ServerPlace::kInProcess;
    Do(effect::Print{alone ? LogLevel::kWarning : LogLevel::kInfo, opened->note});
  }
  Step(&AgentMachine::OnStoreOpened, opened->store);
}

void Agent::Do(const effect::SpawnWorkers& spawn) {
  round_started_ = SteadyNow();
  store_->BeginRound(spawn.assignment);
  progress_->BeginRound(spawn.assignment, settings_.config.slots);
  workers_->Start(spawn.assignment, spawn.ranks);
  if (workers_->all_started()) store_->Register(workers_->pids());
}

void Agent::Do(const effect::SignalWorkers& signal) { workers_->Signal(signal.signal, signal.ranks); }
void Agent::Do(const effect::NotifyStop& stop) { workers_->NotifyStop(stop.ranks, stop.killed_at, stop.reason); }
void Agent::Do(const effect::SendToWorkers& tell) { workers_->Tell(tell.ranks, tell.line); }

void Agent::Do(const effect::ReformWorkers& reform) {
  progress_->BeginRound(reform.assignment, settings_.config.slots);
  workers_->Reform(reform.assignment, reform.ranks);
}

void Agent::Do(const effect::KillWorkers& kill) { workers_->Kill(kill.ranks); }

void Agent::Do(const effect::SweepOrphans&) {
  sweep_.Begin(SteadyNow());
  ContinueSweep();
}

void Agent::ContinueSweep() {
  const size_t stuck = sweep_.Continue(KnownChildren(), workers_->pids(), SteadyNow());
  if (stuck == 0) return;
  Do(effect::Print{LogLevel::kWarning,
                   absl::StrCat(stuck, stuck == 1 ? " process" : " processes",
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
  terminal_.Around([&] { Log(print.level, print.text); });
}

void Agent::Do(const effect::ShowStatus& status) { terminal_.ShowAtCursor(status.text); }

void Agent::Do(const effect::Exit& exit) {
  exit_ = exit;
  loop_->Quit();
}

int Agent::Finish() {
  progress_->Hide();
  // Close the store first, for the other nodes; then print the workers' remaining output; then the failure summary.
  store_->Close();
  pump_.Drain(SteadyNow() + kDrain);
  if (exit_->verdict && !exit_->verdict->succeeded()) {
    hosts::v1::JobFailure failure;
    failure.set_entrypoint(settings_.config.entrypoint);
    *failure.mutable_verdict() = *exit_->verdict;
    failure.mutable_others()->Assign(exit_->siblings.begin(), exit_->siblings.end());
    failure.set_interpreter(FindInterpreter(settings_.config));
    failure.set_hint(HintFor(*exit_->verdict));
    const bool sent = settings_.send_failure && settings_.send_failure(failure);
    if (!sent) LogVerbatim(FailureSummary(failure, absl::LocalTimeZone()));
    WriteOuterErrorFile(*exit_->verdict);
  }
  link_->Disconnect();
  if (link_->Hosts()) LingerForOthers();
  link_->Close();
  return exit_->code;
}

std::string Agent::HintFor(const rendezvous::Verdict& verdict) const {
  const bool several_nodes = settings_.config.settings.max_nodes() > 1;
  // This node never got a round, and no worker failed: too few nodes joined.
  if (round_started_ == SteadyTime() && verdict.exit_code() == 1 && several_nodes) {
    const std::vector<std::string> absent = machine_->AbsentHosts();
    return absl::StrCat("start ddprun on ", absent.empty() ? "the other nodes" : HostsText(absent),
                        " with the same --rdzv-endpoint=", ServersText(settings_.config),
                        " and --rdzv-id=", settings_.config.job_id);
  }
  if (!verdict.has_first_cause()) return "";
  const std::string hint = TorchHint(settings_.config, host_, verdict.first_cause());
  return hint.empty() ? NcclHint(verdict.first_cause(), several_nodes ? InterfaceOf(place_.address) : "") : hint;
}

void Agent::LingerForOthers() {
  const SteadyTime now = SteadyNow();
  const SteadyTime deadline = now + Linger(settings_.config.settings);
  const SteadyTime leavers_deadline = now + settings_.config.shutdown_timeout;
  SteadyTime say_at = now + kLogStayAfter;
  timer_ = nullptr;
  const auto warning = loop_->AddTimer(
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
}

}  // namespace ddprun::launcher
