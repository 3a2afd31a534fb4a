#include "launcher/agent.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "base/log.h"
#include "base/process.h"
#include "base/secret.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "launcher/cluster/query_job_end.h"
#include "launcher/config/parse_options.h"
#include "launcher/interpreter.h"
#include "launcher/io/error_file.h"
#include "launcher/io/event_loop.h"
#include "launcher/io/file_descriptor.h"
#include "launcher/io/net.h"
#include "launcher/process/orphan_sweeper.h"
#include "launcher/process/proc_files.h"
#include "launcher/process/spawn_process.h"
#include "launcher/report/error_file_format.h"
#include "launcher/report/explain_end.h"
#include "launcher/report/wait_text.h"
#include "rendezvous/core/fence.h"
#include "rendezvous/core/heartbeats.h"
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

// Words that may have secrets, for SecretMask.
std::vector<std::string> OwnWords() {
  std::vector<std::string> words = OwnCommandLine();
  for (std::string& entry : OwnEnvironment()) words.push_back(std::move(entry));
  return words;
}

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
      words_(OwnWords()),
      capsules_(settings_.config, host_, settings_.launcher_id, words_),
      signals_(std::move(signals)),
      uninterruptible_(settings_.config.options.uninterruptible_timeout),
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
  DDPRUN_ASSIGN_OR_RETURN(loop_, EventLoop::Create());
  DDPRUN_RETURN_IF_ERROR(signals_->Attach(loop_.get(), [this](const ReceivedSignal& s) { OnSignal(s); }));
  DDPRUN_RETURN_IF_ERROR(settings_.guard->Watch(loop_.get()));
  DDPRUN_ASSIGN_OR_RETURN(place_, FindHostAddresses(config, loop_.get(), [this] { return exit_.has_value(); }));
  if (config.server_place != ServerPlace::kInProcess) {
    Log(LogLevel::kInfo, absl::StrCat("this node is ", host_, ", address ", place_.address,
                                      config.options.local_addr
                                          ? " (--local-addr)"
                                          : " (of the route to the rendezvous server; --local-addr overrides it)"));
  }

  machine_ = std::make_unique<AgentMachine>(MachineSettings(), SteadyNow());
  progress_ = MonitorProgress();
  hangs_ = MonitorHangs();
  inspector_ = CreateInspector();
  store_ = CreateStore();
  DDPRUN_RETURN_IF_ERROR(CreateWorkers());
  timer_ = loop_->AddTimer(
      [this] {
        return std::min({machine_->NextDeadline(), sweep_.deadline(), progress_->NextDeadline(), hangs_->NextDeadline(),
                         store_->NextDeadline(), uninterruptible_.NextDeadline()});
      },
      [this](SteadyTime now) { OnTimer(now); });
  end_time_query_ = QueryJobEnd(config, loop_.get(), OwnEnvironment(), [this](absl::Time end) {
    end_time_ = end;
    workers_->SetJobEnd(end);
  });
  Step(&AgentMachine::Start);
  DDPRUN_ASSIGN_OR_RETURN(link_, RendezvousLink::Open(&config, place_, loop_.get(),
                                                      [this](const rendezvous::ClientEvent& event) { Handle(event); }));
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
  agent.has_end_command = !config.options.on_end.empty() || !config.options.result.empty();
  agent.is_only_node = config.server_place == ServerPlace::kInProcess;
  return agent;
}

std::unique_ptr<RoundStore> Agent::CreateStore() {
  RoundStore::Events events;
  events.on_ranks_joined = [this](int joined) { Step(&AgentMachine::OnRanksJoined, joined); };
  events.on_registering = [this] { Step(&AgentMachine::OnRegistering); };
  events.on_store_reached = [this](const absl::Status& status) { Step(&AgentMachine::OnStoreReached, status); };
  events.on_evidence = [this](const std::string& payload) { hangs_->OnNodeEvidence(payload); };
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
    capsules_.record().OnEnded(ends, machine_->state() != AgentMachine::State::kRunning, absl::Now());
    for (const WorkerEnd& end : ends) {
      progress_->OnEnded(end.local_rank);
      hangs_->OnEnded(end.local_rank, end.failure ? end.failure->message() : "exited with code 0");
    }
    Step(&AgentMachine::OnWorkersEnded, ends);
  };
  events.on_link = [this](int32_t local_rank, const LinkEvent& event) {
    Step(&AgentMachine::OnLink, local_rank, event);
  };
  events.on_progress = [this](int32_t local_rank, const ReportedProgress& progress) {
    progress_->OnProgress(local_rank, progress);
  };
  events.on_probe = [this](int32_t local_rank, pid_t process, UniqueFd socket) {
    hangs_->OnProbe(local_rank, process, std::move(socket));
  };
  events.on_output = [this](int32_t local_rank, const OutputSource& out, const OutputSource& err) {
    inspector_->OnOutput(local_rank, out, err);
    capsules_.OnOutput(local_rank, out, err);
  };
  events.may_start = [this] { return machine_->MayStartWorkers(SteadyNow()); };
  events.on_all_started = [this] {
    ReapDeadOrphans(KnownChildren());
    store_->Register(workers_->pids());
  };
  events.on_start_failed = [this](const WorkerGroup::StartError& error) {
    Step(&AgentMachine::OnSpawnFailed, error.not_started, error.failure);
  };
  DDPRUN_ASSIGN_OR_RETURN(workers_, WorkerGroup::Create(std::move(group), loop_.get(), &pump_, std::move(events)));
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
    const auto* const stop = std::get_if<rendezvous::StopRound>(message);
    if (stop != nullptr) capsules_.record().OnStopRound(*stop);
    Step(&AgentMachine::OnServerMessage, *message);
    // The workers had stopped before the server named the cause.
    if (stop != nullptr && machine_->state() == AgentMachine::State::kIdle) WriteCapsule();
    return;
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
    if (end_command_ != nullptr) return;  // it reaps itself
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
  if (staying_ || end_command_ != nullptr) {
    const auto& warnings = settings_.config.warning_signals;
    const bool stops = std::find(warnings.begin(), warnings.end(), signal.number) == warnings.end();
    // The other launchers may still need the server while they stop, and the job's end may take this long.
    if (!stops || from_slurm || from_hosts) return;
    if (end_command_ != nullptr) return end_command_->Kill(absl::StrCat("the launcher received ", signal.Text()));
    return link_->StopLingering();
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
  events.is_straggler = [this](int32_t rank) { return machine_->IsStraggler(rank); };
  events.read_reports = [this] { workers_->ReadReports(); };
  events.warn = [this](const std::string& line) { Do(effect::Print{LogLevel::kWarning, line}); };
  events.print = [this](const std::string& lines) { terminal_.Around([&] { LogVerbatim(lines); }); };
  events.kill = [this](int32_t local_rank, const std::string& message, const std::string& traceback) {
    workers_->KillHung(local_rank, message, traceback);
  };
  events.kill_finished = [this](int32_t local_rank) { workers_->KillFinished(local_rank); };
  return std::make_unique<ProgressMonitor>(settings_.config, loop_.get(), &terminal_, std::move(events));
}

std::unique_ptr<HangMonitor> Agent::MonitorHangs() {
  HangMonitor::Events events;
  events.round_lasts = [this] {
    const AgentMachine::State state = machine_->state();
    return state == AgentMachine::State::kRunning || state == AgentMachine::State::kSucceeded;
  };
  events.process_of = [this](int32_t local_rank) {
    return workers_->ReporterOf(local_rank) == 0 ? 0 : workers_->pids()[local_rank];
  };
  events.send_evidence = [this](const std::string& payload) { store_->SendEvidence(payload); };
  events.report = [this](const rendezvous::Hang& hang) { Step(&AgentMachine::OnHang, hang); };
  events.send_stacks = [this](const rendezvous::Inspection& stacks) { Step(&AgentMachine::OnStacks, stacks); };
  return std::make_unique<HangMonitor>(settings_.config.options.hang, host_, settings_.config.slots, loop_.get(),
                                       std::move(events));
}

std::unique_ptr<Inspector> Agent::CreateInspector() {
  Inspector::Events events;
  events.process_of = [this](int32_t local_rank) {
    return workers_->ReporterOf(local_rank) == 0 ? 0 : workers_->pids()[local_rank];
  };
  events.count_collectives = [this](int32_t local_rank, const auto& on_count) {
    return hangs_->CountCollectives(local_rank, on_count);
  };
  events.send = [this](const rendezvous::Inspection& answer) { Step(&AgentMachine::OnStacks, answer); };
  return std::make_unique<Inspector>(loop_.get(), settings_.config.slots, std::move(events));
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

void Agent::FindUninterruptible(SteadyTime now) {
  if (machine_->state() != AgentMachine::State::kRunning) return uninterruptible_.EndRound();
  std::vector<bool> asleep;
  for (const pid_t pid : workers_->pids()) {
    asleep.push_back(pid != 0 && absl::StartsWith(StatusField(StatusOf(pid), "State"), "D"));
  }
  const std::string why = absl::StrCat("in uninterruptible sleep for ", absl::FormatDuration(uninterruptible_.limit()),
                                       " (", kUninterruptibleVariable, ")");
  for (const int32_t rank : uninterruptible_.Check(asleep, now)) {
    if (const auto failure = workers_->DescribeStuck(rank, why)) Step(&AgentMachine::OnUninterruptible, *failure);
  }
}

void Agent::OnTimer(SteadyTime now) {
  if (now >= sweep_.deadline()) {
    ContinueSweep();
    ExecutePending();
  }
  if (const auto report = progress_->OnDeadline(now)) link_->Send(*report);
  hangs_->OnDeadline(now);
  store_->OnDeadline(now);
  if (now >= uninterruptible_.NextDeadline()) FindUninterruptible(now);
  if (now >= machine_->NextDeadline()) Step(&AgentMachine::OnDeadline);
}

void Agent::Execute(const AgentEffect& effect) {
  std::visit([this](const auto& e) { Do(e); }, effect);
}

void Agent::Do(const effect::Send& send) {
  const auto* const failed = std::get_if<rendezvous::WorkerFailed>(&send.message);
  if (failed != nullptr) capsules_.record().OnReported(failed->failure());
  link_->Send(send.message);
}

void Agent::Do(const effect::ResetConnection&) { link_->Reset(); }

void Agent::Do(const effect::OpenStore&) {
  WriteCapsule();
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
  capsules_.record().BeginRound(spawn.assignment, absl::Now());
  store_->BeginRound(spawn.assignment);
  progress_->BeginRound(spawn.assignment, settings_.config.slots);
  hangs_->BeginRound(spawn.assignment);
  uninterruptible_.BeginRound(round_started_);
  workers_->Start(spawn.assignment, spawn.ranks);
  if (workers_->all_started()) store_->Register(workers_->pids());
}

void Agent::Do(const effect::SignalWorkers& signal) { workers_->Signal(signal.signal, signal.ranks); }
void Agent::Do(const effect::NotifyStop& stop) { workers_->NotifyStop(stop.ranks, stop.killed_at, stop.reason); }
void Agent::Do(const effect::SendToWorkers& tell) { workers_->Tell(tell.ranks, tell.line); }

void Agent::Do(const effect::ReformWorkers& reform) {
  capsules_.record().BeginRound(reform.assignment, absl::Now());
  progress_->BeginRound(reform.assignment, settings_.config.slots);
  hangs_->BeginRound(reform.assignment);
  uninterruptible_.BeginRound(SteadyNow());
  workers_->Reform(reform.assignment, reform.ranks);
}

void Agent::Do(const effect::KillWorkers& kill) { workers_->Kill(kill.ranks); }

void Agent::Do(const effect::DescribeStuck& workers) {
  const std::string why = absl::StrCat("alive ", absl::FormatDuration(StopSequence::kAbandonAfter), " after SIGKILL");
  std::vector<rendezvous::WorkerFailure> failures;
  for (const int32_t rank : workers.ranks) {
    if (auto failure = workers_->DescribeStuck(rank, why)) failures.push_back(*std::move(failure));
  }
  Step(&AgentMachine::OnStuck, workers.ranks, failures);
}

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
  capsules_.record().OnEvent(print.text, absl::Now());
  terminal_.Around([&] { Log(print.level, print.text); });
}

void Agent::Do(const effect::ReplaceHung& hung) {
  if (!settings_.config.options.hang.restart) return;
  for (const int32_t rank : hung.ranks) {
    workers_->KillHung(rank, absl::StrCat(hung.text, "; killed (--on-hang=restart)"), CleanText(hung.stacks));
  }
}

void Agent::Do(const effect::ShowHang& hang) {
  const std::pair<std::string, std::string> text = absl::StrSplit(CleanText(hang.text), absl::MaxSplits('\n', 1));
  capsules_.record().OnEvent(text.first, absl::Now());
  terminal_.Around([&] {
    Log(LogLevel::kWarning, text.first);
    // Indented, so that another launcher can't forge lines of this log.
    for (const absl::string_view line : absl::StrSplit(text.second, '\n', absl::SkipEmpty())) {
      LogVerbatim(absl::StrCat("  ", line, "\n"));
    }
  });
}

void Agent::Do(const effect::CollectStacks& asked) {
  if (asked.inspect.what() == rendezvous::Inspect::WHAT_STACKS) return hangs_->Inspect(asked.inspect, asked.ranks);
  inspector_->Inspect(asked.inspect, asked.ranks);
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
  inspector_->AnswerNow();
  const Options& options = settings_.config.options;
  const bool succeeded = exit_->verdict && exit_->verdict->succeeded();
  // A launcher that a signal stopped has not failed.
  const bool failed = exit_->verdict ? !succeeded : exit_->code == worker_contract::kExitFailed;
  const bool reports = exit_->runs_end_command && (!options.result.empty() || !options.on_end.empty());
  const hosts::v1::JobFailure failure = failed || reports ? Summary() : hosts::v1::JobFailure();
  if (failed && exit_->verdict) {
    const bool sent = settings_.send_failure && settings_.send_failure(failure);
    if (!sent) LogVerbatim(FailureSummary(failure, absl::LocalTimeZone()));
    WriteOuterErrorFile(*exit_->verdict);
  }
  if (failed) capsules_.record().OnJobEnd(failure, absl::Now());
  if (!succeeded) WriteCapsule();
  link_->Disconnect();
  const std::string capsule = capsules_.Finish(kDrain);
  if (!capsule.empty()) {
    Log(succeeded ? LogLevel::kInfo : LogLevel::kWarning,
        absl::StrCat("to see how it failed: ddprun explain ", capsule));
  }
  if (reports) ReportEnd(failure);
  if (link_->Hosts()) LingerForOthers();
  link_->Close();
  return exit_->code;
}

hosts::v1::JobFailure Agent::Summary() const {
  hosts::v1::JobFailure summary;
  summary.set_entrypoint(settings_.config.entrypoint);
  *summary.mutable_verdict() =
      exit_->verdict.value_or(rendezvous::NewVerdict(false, exit_->reason, std::nullopt, exit_->code));
  summary.mutable_others()->Assign(exit_->siblings.begin(), exit_->siblings.end());
  summary.set_interpreter(FindInterpreter(settings_.config));
  summary.set_hint(HintFor(summary.verdict()));
  summary.set_hang(exit_->hang);
  return summary;
}

void Agent::ReportEnd(const hosts::v1::JobFailure& summary) {
  const Options& options = settings_.config.options;
  JobEnd end{
      settings_.config.job_id, settings_.config.settings, summary, machine_->last_round(), {}, began_, absl::Now()};
  if (const rendezvous::Hang* hang = machine_->OpenHang()) end.hang = *hang;
  const std::string json = JobEndJson(end, SecretMask(words_));
  const auto warn = [](absl::string_view flag, const absl::Status& status) {
    if (!status.ok()) Log(LogLevel::kWarning, absl::StrCat(flag, ": ", status.message()));
  };
  if (!options.result.empty()) warn("--result", ReplaceFile(options.result, json, 0666));
  if (options.on_end.empty()) return;
  timer_ = nullptr;
  absl::StatusOr<std::unique_ptr<EndCommand>> command =
      EndCommand::Start(loop_.get(), options.on_end, json, [this] { loop_->Quit(); });
  if (!command.ok()) return warn("--on-end", command.status());
  end_command_ = *std::move(command);
  loop_->Run();
  warn("--on-end", end_command_->result());
  end_command_ = nullptr;
}

void Agent::WriteCapsule() {
  const rendezvous::Hang* const hang = machine_->OpenHang();
  capsules_.record().OnRoundEnd(hang != nullptr ? hang->text() : progress_->open_hang(), absl::Now());
  capsules_.Write(hangs_->collected());
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
  return hint.empty() ? NetworkHint(verdict.first_cause(), several_nodes ? InterfaceOf(place_.address) : "") : hint;
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
