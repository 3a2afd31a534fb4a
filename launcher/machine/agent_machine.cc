#include "launcher/machine/agent_machine.h"

#include <signal.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/endpoint.h"
#include "base/process.h"
#include "base/text.h"
#include "launcher/report/wait_text.h"
#include "rendezvous/core/phrases.h"
#include "worker_contract/exit_codes.h"

namespace ddprun::launcher {
namespace {

using rendezvous::Join;

// Time in which the end of a process usually explains why a worker's group broke.
constexpr absl::Duration kBrokenHold = absl::Seconds(1);

}  // namespace

AgentMachine::AgentMachine(AgentSettings settings, SteadyTime now)
    : settings_(std::move(settings)),
      line_({ToDuration(settings_.join.settings().heartbeat_timeout()),
             ToDuration(settings_.join.settings().join_timeout()), settings_.reconnect_timeout},
            now),
      workers_(settings_.join.slots()),
      failures_(settings_.batch ? kSignalSpread : absl::ZeroDuration()),
      reports_({Self(), settings_.server, settings_.join.job_id(), settings_.expected_hosts}, &line_) {}

void AgentMachine::Start(SteadyTime now, Effects* effects) {
  effects->push_back(effect::OpenStore{});
  reports_.StartWait(now);
}

void AgentMachine::OnStoreOpened(OpenedStore store, SteadyTime now, Effects* effects) {
  if (state_ == State::kDone) return;
  store_ = std::move(store);
  // Suspended workers may have been asked to end meanwhile.
  if (state_ != State::kStopping || exit_ || !workers_.Quiet()) return;
  state_ = State::kIdle;
  reports_.StartWait(now);
  if (line_.up()) SendReady(current_->round(), effects);
}

void AgentMachine::OnConnected(const std::string& leader, SteadyTime now, Effects* effects) {
  leader_ = leader;
  if (state_ == State::kDone || (exit_ && state_ == State::kStopping)) return;
  SendJoin(line_.OnConnected(now), now, effects);
}

void AgentMachine::SendJoin(uint64_t incarnation, SteadyTime now, Effects* effects) {
  Join join = settings_.join;
  join.set_incarnation(incarnation);
  if (current_) *join.mutable_current() = *current_;
  join.set_in_touch(line_.lease().InTouch(now));
  *join.mutable_heartbeat_timeout() = FromDuration(line_.lease().timeout());
  if (store_) {
    join.set_store_port(store_->port);
    join.set_store_secret(store_->secret);
  }
  for (rendezvous::Survivor& survivor : workers_.Survivors()) *join.add_survivors() = std::move(survivor);
  join.set_can_reform(workers_.CanReform());
  switch (state_) {
    case State::kRunning: join.set_phase(Join::PHASE_RUNNING); break;
    case State::kSucceeded: join.set_phase(Join::PHASE_SUCCEEDED); break;
    case State::kStopping: join.set_phase(Join::PHASE_STOPPING); break;
    default: join.set_phase(Join::PHASE_IDLE); break;
  }
  // A failure that the server may not have received must arrive before the node counts as idle.
  if (reported_) join.set_phase(Join::PHASE_STOPPING);
  joined_as_ = join.phase();
  effects->push_back(effect::Send{std::move(join)});
}

void AgentMachine::SendReady(uint64_t left_round, Effects* effects) {
  const OpenedStore store = store_.value_or(OpenedStore());
  effects->push_back(effect::Send{rendezvous::NewReady(left_round, store.port, store.secret, workers_.Survivors(),
                                                       workers_.CanReform(), left_out_)});
}

void AgentMachine::OnDisconnected(const std::string& reason, bool permanent, std::optional<SteadyTime> refused,
                                  SteadyTime now, Effects* effects) {
  if (state_ == State::kDone) return;
  unconfirmed_.reset();
  deferred_.reset();
  const bool was_up = line_.OnDisconnected(reason, refused, now);
  if (exit_) {
    if (std::exchange(finish_wait_, Timer()).running() && Stopped()) OnStopped(effects);
    return;
  }
  if (!permanent) return ReportLostServer(was_up, now, effects);
  effects->push_back(effect::Print{LogLevel::kError, reason});
  StopAndExit({1, std::nullopt, {}}, SIGTERM, reason, now, effects);
}

std::string AgentMachine::HowLong(absl::Duration workers_run) const {
  if (workers_run == absl::InfiniteDuration()) return "";
  const absl::Duration left = std::max(absl::ZeroDuration(), absl::Trunc(workers_run, absl::Milliseconds(100)));
  return absl::StrCat(" for ", absl::FormatDuration(left),
                      line_.was_silent() ? "" : ", and longer while no server is running");
}

void AgentMachine::ReportLostServer(bool was_up, SteadyTime now, Effects* effects) {
  if (was_up) {
    std::string text = absl::StrCat("lost the rendezvous server (", line_.last_error(), "); trying again for ",
                                    absl::FormatDuration(line_.patience()));
    if (state_ == State::kRunning) absl::StrAppend(&text, "; workers run on", HowLong(CutOffAt() - now));
    effects->push_back(effect::Print{LogLevel::kWarning, std::move(text)});
  } else if (state_ == State::kConnecting) {
    effects->push_back(effect::ShowStatus{reports_.WaitText(now)});
  }
}

void AgentMachine::LeaveSilentServer(SteadyTime now, Effects* effects) {
  unconfirmed_.reset();
  deferred_.reset();
  const bool was_up = line_.OnReset(absl::StrCat(settings_.server, ": not responding"), now);
  if (!exit_) ReportLostServer(was_up, now, effects);
  effects->push_back(effect::ResetConnection{});
}

void AgentMachine::GiveUpServer(SteadyTime now, Effects* effects) {
  const std::string& error = line_.last_error();
  effects->push_back(effect::Print{
      LogLevel::kError,
      absl::StrCat("no rendezvous server at ", settings_.server, " for ", absl::FormatDuration(line_.patience()), "; ",
                   Self(), ": ", error.empty() ? "no answer" : error,
                   "; start it there, or set --rdzv-endpoint to where it is")});
  effect::Exit exit{1, std::nullopt, {}};
  if (reported_) {
    // The loss of the server does not hide the failure that it has not received.
    exit.code = rendezvous::ExitStatus(*reported_);
    exit.siblings = failures_.siblings();
    exit.verdict = rendezvous::NewVerdict(
        false, absl::StrCat(rendezvous::DescribeFailure(*reported_), "; the rendezvous server is lost"), reported_,
        exit.code);
  }
  StopAndExit(std::move(exit), SIGTERM, "the rendezvous server is lost", now, effects);
}

void AgentMachine::OnServerMessage(const rendezvous::ServerMessage& message, SteadyTime now, Effects* effects) {
  if (state_ == State::kDone) return;
  switch (line_.OnMessage(std::holds_alternative<rendezvous::HeartbeatAck>(message), now)) {
    case ServerLine::Reading::kStale: return;
    // A round may have begun without this node.
    case ServerLine::Reading::kTooLate:
      if (!workers_.Quiet()) return LeaveSilentServer(now, effects);
      if (const auto* m = std::get_if<rendezvous::Assign>(&message)) return Confirm(m->assignment(), now, effects);
      break;
    case ServerLine::Reading::kCounts:
      if (unconfirmed_) OnAssign(*std::exchange(unconfirmed_, std::nullopt), now, effects);
      break;
  }
  if (const auto* m = std::get_if<rendezvous::Welcome>(&message)) return OnWelcome(*m, now, effects);
  if (const auto* m = std::get_if<rendezvous::Assign>(&message)) return OnAssign(m->assignment(), now, effects);
  if (const auto* m = std::get_if<rendezvous::StopRound>(&message)) return OnStopRound(*m, now, effects);
  if (const auto* m = std::get_if<rendezvous::ExcludedFromRound>(&message)) return OnExcludedFromRound(*m, effects);
  if (const auto* m = std::get_if<rendezvous::Hang>(&message)) return OnHangReport(*m, effects);
  if (const auto* m = std::get_if<rendezvous::Inspect>(&message)) return OnInspect(*m, effects);
  if (const auto* m = std::get_if<rendezvous::Finish>(&message)) return OnFinish(*m, now, effects);
  if (const auto* m = std::get_if<rendezvous::Waiting>(&message)) {
    if (state_ != State::kIdle) return;
    reports_.OnWaiting(*m, now);
    effects->push_back(effect::ShowStatus{reports_.WaitText(now)});
  }
  if (const auto* m = std::get_if<rendezvous::Rejected>(&message)) {
    if (exit_) return;
    effects->push_back(effect::Print{LogLevel::kError, m->reason()});
    StopAndExit({2, std::nullopt, {}}, SIGTERM, m->reason(), now, effects);
  }
}

void AgentMachine::OnWelcome(const rendezvous::Welcome& welcome, SteadyTime now, Effects* effects) {
  if (exit_) return;
  if (line_.ever_up()) {
    effects->push_back(effect::Print{
        LogLevel::kWarning, leader_.empty()
                                ? absl::StrCat("reached the rendezvous server at ", settings_.server, " again")
                                : absl::StrCat("reached the rendezvous server at ", leader_, ", which leads")});
  }
  line_.OnWelcome(welcome, now);
  if (current_ && welcome.missed_round() > current_->round()) line_.OnMissedRound();
  if (state_ == State::kConnecting) {
    state_ = State::kIdle;
    reports_.StartWait(now);
  }
  if (stuck_) effects->push_back(effect::Send{rendezvous::NewWorkerFailed(current_->round(), *stuck_)});
  if (reported_) {
    effects->push_back(effect::Send{rendezvous::NewWorkerFailed(current_->round(), *reported_)});
    if (state_ == State::kIdle) SendReady(current_->round(), effects);
  } else if (joined_as_ == Join::PHASE_RUNNING && state_ == State::kSucceeded) {
    // The workers ended after the Join was sent, which reported them as running.
    effects->push_back(effect::Send{rendezvous::NewGroupSucceeded(current_->round())});
  } else if (joined_as_ != Join::PHASE_IDLE && state_ == State::kIdle) {
    SendReady(current_->round(), effects);
  }
}

void AgentMachine::Confirm(const rendezvous::Assignment& assignment, SteadyTime now, Effects* effects) {
  if (state_ != State::kIdle) return;
  unconfirmed_ = assignment;
  line_.Confirm(now);
  effects->push_back(effect::Send{rendezvous::Heartbeat{}});
}

void AgentMachine::OnAssign(const rendezvous::Assignment& assignment, SteadyTime now, Effects* effects) {
  if (exit_ || (current_ && assignment.round() <= current_->round())) return;
  if (state_ == State::kStopping) {
    // A repeated Ready crossed the StopRound for which survivors are being stopped. The round counts as left at once:
    // its Ready follows.
    current_ = assignment;
    reported_.reset();
    return;
  }
  if (state_ != State::kIdle) return;
  const LocalRanks kept = workers_.In(WorkerSet::State::kSuspended);
  if (stuck_) {
    effects->push_back(
        effect::Print{LogLevel::kWarning,
                      absl::StrCat("round ", assignment.round(), ": not starting workers before one that is stuck ",
                                   "in the kernel has ended")});
    deferred_ = assignment;
    return;
  }
  if (!workers_.Quiet() || (!assignment.keeps_workers() && !kept.empty())) {
    // A survivor is being killed, or the server does not know that there are any.
    deferred_ = assignment;
    return assignment.keeps_workers() ? void() : KillSurvivors(kept, now, effects);
  }
  state_ = State::kRunning;
  current_ = assignment;
  line_.OnRound();
  left_out_ = false;
  reported_.reset();
  failures_.Clear(assignment.world_size());
  reports_.StartRound(assignment, now);
  effects->push_back(effect::ShowStatus{""});
  effects->push_back(effect::Print{assignment.group_world_size() > 1 ? LogLevel::kWarning : LogLevel::kInfo,
                                   DescribeRound(assignment)});
  // If any node has survivors, this node's workers can re-form too, since they run the same program; they may not have
  // connected yet when the round ends. Otherwise a node that has just joined would make the server restart all.
  if (assignment.keeps_workers() || assignment.has_state_source()) workers_.AssumeAware();
  workers_.Resume(kept);
  const LocalRanks newcomers = workers_.NotAlive();
  workers_.Start(newcomers);
  line_.SetHasWorkers(true);
  if (!kept.empty()) effects->push_back(effect::ReformWorkers{assignment, kept});
  effects->push_back(effect::SpawnWorkers{assignment, newcomers});
}

std::string AgentMachine::DescribeRound(const rendezvous::Assignment& assignment) const {
  std::string text = absl::StrCat("round ", assignment.round(), ": ", Self(), " is node ", assignment.group_rank(),
                                  " of ", assignment.group_world_size(), ", ");
  absl::StrAppend(&text, RanksText(workers_.All()), " of ", assignment.world_size(), "; master ",
                  Endpoint{assignment.master_addr(), assignment.master_port()}.ToString(), "; ", assignment.reason());
  if (!assignment.keeps_workers()) return text;
  absl::StrAppend(&text, "; keeping ", RanksText(workers_.In(WorkerSet::State::kSuspended)), ", starting ",
                  RanksText(workers_.NotAlive()));
  return text;
}

void AgentMachine::OnStopRound(const rendezvous::StopRound& stop, SteadyTime now, Effects* effects) {
  // A round whose Assign waited for confirmation counts as left at once.
  for (std::optional<rendezvous::Assignment>* early : {&unconfirmed_, &deferred_}) {
    if (*early && stop.round() >= (*early)->round()) current_ = std::exchange(*early, std::nullopt);
  }
  if (exit_ || !current_ || stop.round() < current_->round()) return;
  reported_.reset();  // the server knows
  switch (state_) {
    case State::kRunning:
    case State::kSucceeded: {
      const bool suspends = stop.keep_workers() && workers_.CanReform();
      effects->push_back(effect::Print{
          LogLevel::kWarning,
          absl::StrCat(suspends ? "suspending" : "stopping", " this node's workers for a new round: ", stop.reason())});
      const auto cause = rendezvous::FirstCause(stop);
      worker_contract::LinkSuspend line{current_->round(), stop.at_step_end(), stop.reason(), std::nullopt};
      if (cause && cause->rank() >= 0) line.blame = cause->rank();
      return LeaveRound(stop.keep_workers(), std::move(line), now, effects);
    }
    case State::kIdle:
      if (!stop.keep_workers() && !workers_.Survivors().empty()) return StopSurvivors(stop.reason(), now, effects);
      // It was ready already, but the server does not know.
      return SendReady(stop.round(), effects);
    case State::kStopping:  // Ready follows by itself
      if (!stop.keep_workers()) return StopSurvivors(stop.reason(), now, effects);
      if (!stop.at_step_end()) SuspendNow(effects);
      return;
    case State::kConnecting:
    case State::kDone: return;
  }
}

void AgentMachine::OnExcludedFromRound(const rendezvous::ExcludedFromRound& without, Effects* effects) {
  if (exit_ || !current_ || without.round() <= current_->round()) return;
  left_out_ = true;
  line_.OnMissedRound();
  effects->push_back(effect::Print{LogLevel::kWarning, without.reason()});
  // If a suspended worker has to end first, the Ready that follows reports it.
  if (state_ == State::kIdle && workers_.Quiet() && store_) SendReady(current_->round(), effects);
}

void AgentMachine::OnHang(rendezvous::Hang hang, SteadyTime, Effects* effects) {
  if (exit_ || (state_ != State::kRunning && state_ != State::kSucceeded)) return;
  hang.set_round(current_->round());
  OnHangReport(hang, effects);
  if (line_.up()) effects->push_back(effect::Send{std::move(hang)});
}

void AgentMachine::OnHangReport(const rendezvous::Hang& hang, Effects* effects) {
  if (exit_ || !current_ || hang.round() != current_->round()) return;
  if (hang.kind() != rendezvous::Hang::KIND_REPLACE) {
    if (LearnHang(hang)) effects->push_back(effect::ShowHang{hang.text()});
    return;
  }
  LocalRanks own;
  for (const int32_t rank : hang.ranks()) {
    const int32_t local_rank = rank - current_->base_rank();
    if (local_rank >= 0 && local_rank < settings_.join.slots()) own.push_back(local_rank);
  }
  if (own.empty()) return;
  const size_t line = hang_ ? hang_->text().find('\n') : std::string::npos;
  effects->push_back(effect::ReplaceHung{own, rendezvous::FirstLine(hang),
                                         line == std::string::npos ? "" : hang_->text().substr(line + 1)});
}

bool AgentMachine::IsStraggler(int32_t rank) const {
  return straggler_ && current_ && straggler_->round() == current_->round() &&
         std::find(straggler_->ranks().begin(), straggler_->ranks().end(), rank) != straggler_->ranks().end();
}

void AgentMachine::OnInspect(const rendezvous::Inspect& inspect, Effects* effects) {
  LocalRanks own;
  rendezvous::Inspect of_own = inspect;
  of_own.clear_ranks();
  const bool output = inspect.what() == rendezvous::Inspect::WHAT_OUTPUT;  // outlives the workers
  const bool runs =
      current_ && inspect.round() == current_->round() && (output || (!exit_ && state_ == State::kRunning));
  for (const int32_t rank : inspect.ranks()) {
    const int32_t local_rank = runs ? rank - current_->base_rank() : -1;
    if (local_rank < 0 || local_rank >= settings_.join.slots()) continue;
    own.push_back(local_rank);
    of_own.add_ranks(rank);
  }
  effects->push_back(effect::CollectStacks{std::move(of_own), std::move(own)});
}

void AgentMachine::OnStacks(const rendezvous::Inspection& stacks, SteadyTime, Effects* effects) {
  // On a newer stream the server ignores it.
  if (line_.up()) effects->push_back(effect::Send{stacks});
}

bool AgentMachine::LearnHang(const rendezvous::Hang& hang) {
  if (hang.kind() == rendezvous::Hang::KIND_STRAGGLER) {
    const bool is_new = !straggler_ || !(*straggler_ == hang);
    straggler_ = hang;
    return is_new;
  }
  const bool known = hang_ && hang_->round() == hang.round();
  const bool continued = hang.kind() == rendezvous::Hang::KIND_CONTINUED;
  if (!continued && hang.kind() != rendezvous::Hang::KIND_HUNG) return true;
  if (continued ? !known : known && *hang_ == hang) return false;
  hang_.reset();
  if (!continued) hang_ = hang;
  return true;
}

void AgentMachine::OnFinish(const rendezvous::Finish& finish, SteadyTime now, Effects* effects) {
  const rendezvous::Verdict& verdict = finish.verdict();
  const bool runs_end_command = finish.runs_end_command() || settings_.is_only_node;
  if (exit_) exit_->runs_end_command |= runs_end_command;
  const bool waited = std::exchange(finish_wait_, Timer()).running();
  // The verdict overrides a Leave that was not sent yet.
  if (exit_ && !leave_.running()) {
    if (waited && Stopped()) OnStopped(effects);
    return;
  }
  leave_.Clear();
  // Another node received a stop signal, as this one did: no worker failed.
  const auto cause = rendezvous::FirstCause(verdict);
  if (exit_ && cause && cause->rank() < 0 && cause->signal() != 0) {
    if (Stopped()) OnStopped(effects);
    return;
  }
  if (state_ == State::kIdle && !verdict.succeeded()) reports_.ReportFailedWait(effects);
  failures_.Forget();
  effect::Exit exit{verdict.exit_code(), verdict, failures_.siblings()};
  if (const rendezvous::Hang* hang = OpenHang()) exit.hang = rendezvous::FirstLine(*hang);
  exit.runs_end_command = runs_end_command;
  StopAndExit(std::move(exit), SIGTERM, verdict.reason(), now, effects);
}

// The workers: their ends and their worker links (docs/worker_protocol.md, section 5), and what they do in the store.

void AgentMachine::OnWorkersEnded(const std::vector<WorkerEnd>& ends, SteadyTime now, Effects* effects) {
  if (CutOffAt() <= now) StopBecauseCutOff(now, effects);  // explains their ends if this launcher slept
  ReportLostSurvivors(ends, effects);
  const LocalRanks before = workers_.Alive();
  const std::vector<FailureEvidence> failed = TakeEnds(ends);
  if (stuck_ && !workers_.AnyStuck()) {
    effects->push_back(effect::Print{LogLevel::kWarning, "the workers that were stuck in the kernel have ended"});
    stuck_.reset();
    stuck_due_.Clear();
    if (deferred_ && state_ == State::kIdle) OnFewerWorkers(now, effects);
  }
  if (state_ != State::kRunning) {
    if (workers_.Alive() == before) return;
    SuspendNow(effects);  // a step can't end without the workers that are gone
    return OnFewerWorkers(now, effects);
  }
  failures_.Add(failed, now);
  if (failures_.Take(now)) return ReportFailure(failures_.cause(), now, effects);
  if (!workers_.AllSucceeded()) return;
  state_ = State::kSucceeded;
  line_.SetHasWorkers(false);
  reports_.EndRound();
  effects->push_back(effect::SweepOrphans{});
  if (line_.up()) effects->push_back(effect::Send{rendezvous::NewGroupSucceeded(current_->round())});
}

std::vector<FailureEvidence> AgentMachine::TakeEnds(const std::vector<WorkerEnd>& ends) {
  std::vector<FailureEvidence> failed;
  for (const WorkerEnd& end : ends) {
    const bool stopped_by_us = workers_.state(end.local_rank) == WorkerSet::State::kStopping;
    if (!workers_.End(end) || !end.failure) continue;
    failed.push_back(FailureEvidence{*end.failure, end.raised_at, stopped_by_us});
  }
  return failed;
}

void AgentMachine::OnSpawnFailed(const LocalRanks& not_started, const rendezvous::WorkerFailure& failure,
                                 SteadyTime now, Effects* effects) {
  workers_.NotStarted(not_started);
  if (state_ == State::kRunning) return ReportFailure(failure, now, effects);
  OnFewerWorkers(now, effects);
}

void AgentMachine::ReportFailure(const rendezvous::WorkerFailure& failure, SteadyTime now, Effects* effects) {
  reported_ = failure;
  effects->push_back(effect::Print{LogLevel::kWarning, rendezvous::DescribeFailure(failure)});
  if (line_.up()) effects->push_back(effect::Send{rendezvous::NewWorkerFailed(current_->round(), failure)});
  LeaveRound(true, {current_->round(), false, rendezvous::DescribeFailure(failure), failure.rank()}, now, effects);
}

void AgentMachine::OnLink(int32_t local_rank, const LinkEvent& event, SteadyTime now, Effects* effects) {
  if (state_ == State::kDone || !current_) return;
  if (const auto* hello = std::get_if<worker_contract::LinkHello>(&event)) {
    workers_.Connected(local_rank, hello->capabilities);
    const LocalRanks can = workers_.CanCheckpoint();
    if (std::find(can.begin(), can.end(), local_rank) != can.end() && std::erase(warned_, local_rank) > 0) {
      RequestCheckpoint({local_rank}, now, effects);
    }
  } else if (const auto* suspended = std::get_if<worker_contract::LinkSuspended>(&event)) {
    OnSuspended(local_rank, *suspended, now, effects);
  } else if (const auto* formed = std::get_if<worker_contract::LinkReFormed>(&event)) {
    OnReFormed(local_rank, *formed, effects);
  } else if (const auto* checkpointed = std::get_if<worker_contract::LinkCheckpointed>(&event)) {
    effects->push_back(effect::Print{
        LogLevel::kInfo, absl::StrCat(RanksText({local_rank}), " wrote a checkpoint of step ", checkpointed->step)});
  } else if (const auto* broken = std::get_if<GroupBroken>(&event)) {
    OnGroupBroken(*broken, now);
  } else if (std::holds_alternative<LinkClosed>(event)) {
    OnLinkClosed(local_rank, now, effects);
  }
}

void AgentMachine::OnReFormed(int32_t local_rank, const worker_contract::LinkReFormed& line, Effects* effects) {
  if (state_ != State::kRunning || line.round != current_->round()) return;
  workers_.Reformed(local_rank);
  effects->push_back(effect::Print{
      LogLevel::kInfo, absl::StrCat(RanksText({local_rank}), " is part of round ", line.round, " at step ", line.step,
                                    line.source ? absl::StrCat(", with the state of rank ", *line.source) : "")});
}

void AgentMachine::OnGroupBroken(const GroupBroken& broken, SteadyTime now) {
  if (state_ != State::kRunning || broken.round != current_->round() || broken_) return;
  broken_ = broken.failure;
  broken_due_.Set(now + kBrokenHold);
}

void AgentMachine::OnLinkClosed(int32_t local_rank, SteadyTime now, Effects* effects) {
  workers_.Disconnected(local_rank);
  const WorkerSet::State worker = workers_.state(local_rank);
  const bool waits = worker == WorkerSet::State::kSuspending || worker == WorkerSet::State::kSuspended;
  if (!waits && !workers_.Reforming(local_rank)) return;
  effects->push_back(
      effect::Print{LogLevel::kWarning,
                    absl::StrCat(RanksText({local_rank}), " closed its worker link while it was ",
                                 waits ? "suspended" : "re-forming", ", so it can't receive the next round: killed")});
  if (waits) return KillSurvivors({local_rank}, now, effects);
  // Its death is a failure of the round.
  effects->push_back(effect::KillWorkers{{local_rank}});
}

void AgentMachine::OnRanksJoined(int joined, SteadyTime now, Effects*) {
  if (state_ == State::kRunning) reports_.OnRanksJoined(joined, now);
}

void AgentMachine::OnRegistering(SteadyTime now, Effects*) {
  if (state_ == State::kRunning) reports_.OnRegistering(now);
}

void AgentMachine::OnStoreReached(const absl::Status& status, SteadyTime now, Effects*) {
  reports_.OnStoreReached(status, now);
}

// The end of a round: its workers are suspended or stopped, and the node becomes idle, or the launcher exits.

void AgentMachine::LeaveRound(bool keep, worker_contract::LinkSuspend line, SteadyTime now, Effects* effects) {
  const std::string reason = line.reason;
  const bool time_to_suspend = settings_.shutdown_timeout > absl::ZeroDuration();
  LocalRanks kept = keep && time_to_suspend ? workers_.CanSuspend() : LocalRanks();
  if (const LocalRanks plain = workers_.Plain(); !kept.empty() && !plain.empty()) {
    effects->push_back(effect::Print{LogLevel::kWarning, absl::StrCat("stopping all workers of this node, because ",
                                                                      RanksText(plain), " can't re-form")});
    kept.clear();
  }
  if (!kept.empty()) {
    effects->push_back(effect::Print{LogLevel::kInfo, absl::StrCat("suspending ", RanksText(kept))});
    workers_.Suspend(kept);
    stopping_.Start(settings_.shutdown_timeout, now);
    // A longer step is aborted, before the worker would be killed for it.
    if (line.at_step_end) suspend_now_.Set(now + settings_.shutdown_timeout / 2);
    suspend_ = std::move(line);
    effects->push_back(effect::SendToWorkers{kept, suspend_});
  }
  StopThese(workers_.In(WorkerSet::State::kRunning), SIGTERM, reason, now, effects);
}

void AgentMachine::StopBecauseCutOff(SteadyTime now, Effects* effects) {
  const absl::Duration since = absl::Trunc(now - line_.lease().since(), absl::Milliseconds(100));
  effects->push_back(effect::Print{
      LogLevel::kWarning,
      absl::StrCat("cut off from the rendezvous server at ", settings_.server, " for ", absl::FormatDuration(since),
                   ": stopping this node's workers, as the other nodes may go on without them")});
  LeaveRound(true, {current_->round(), false, "cut off from the rendezvous server", std::nullopt}, now, effects);
}

void AgentMachine::Stop(std::optional<int> signal, const std::string& reason, SteadyTime now, Effects* effects) {
  StopThese(workers_.Alive(), signal, reason, now, effects);
}

void AgentMachine::StopThese(LocalRanks workers, std::optional<int> signal, const std::string& reason, SteadyTime now,
                             Effects* effects) {
  reports_.Clear();
  failures_.Forget();
  broken_.reset();
  broken_due_.Clear();
  // Workers that are stopping already keep their deadlines; exit_ may have been set meanwhile.
  workers.erase(std::remove_if(workers.begin(), workers.end(),
                               [&](int32_t rank) { return workers_.state(rank) == WorkerSet::State::kStopping; }),
                workers.end());
  workers_.Stop(workers);
  if (Stopped()) return OnStopped(effects);
  state_ = State::kStopping;
  if (workers.empty()) return;
  stopping_.Start(settings_.shutdown_timeout, now);
  // A lease that has not run out is renewed while they stop.
  const bool cut_off = line_.lease().StopAt() <= now;
  const SteadyTime killed_at = stopping_.KillAt(cut_off ? WorkersMayRunUntil() : SteadyTime::InfiniteFuture());
  if (now < killed_at) effects->push_back(effect::NotifyStop{workers, killed_at, reason});
  if (settings_.shutdown_timeout > absl::ZeroDuration() && signal) {
    effects->push_back(effect::SignalWorkers{*signal, workers});
    effects->push_back(effect::SignalWorkers{SIGCONT, workers});
  }
  KillOrAbandon(now, effects);
}

void AgentMachine::KillOrAbandon(SteadyTime now, Effects* effects) {
  const StopSequence::Step step = stopping_.Take(WorkersMayRunUntil(), now);
  if (step == StopSequence::Step::kNone) return;
  LocalRanks workers = workers_.In(WorkerSet::State::kSuspending);
  if (!workers.empty()) {
    effects->push_back(
        effect::Print{LogLevel::kWarning, absl::StrCat(RanksText(workers), " did not suspend in time: killed")});
    workers_.Stop(workers);
  }
  workers = workers_.In(WorkerSet::State::kStopping);
  if (step == StopSequence::Step::kKill) {
    effects->push_back(effect::KillWorkers{workers});
    return;
  }
  effects->push_back(effect::DescribeStuck{workers});
}

void AgentMachine::OnStuck(const LocalRanks& ranks, const std::vector<rendezvous::WorkerFailure>& failures,
                           SteadyTime now, Effects* effects) {
  for (const rendezvous::WorkerFailure& failure : failures) {
    effects->push_back(effect::Print{LogLevel::kError, rendezvous::DescribeFailure(failure)});
  }
  for (const int32_t rank : ranks) {
    const bool has_process = std::any_of(failures.begin(), failures.end(),
                                         [rank](const auto& failure) { return failure.local_rank() == rank; });
    if (has_process) {
      workers_.Abandon({rank});
    } else if (workers_.state(rank) == WorkerSet::State::kStopping) {
      workers_.NotStarted({rank});
    }
  }
  if (!failures.empty() && !exit_) {
    stuck_ = failures.front();
    stuck_due_.Set(now + ToDuration(settings_.join.settings().node_cooldown()));
    if (line_.up()) effects->push_back(effect::Send{rendezvous::NewWorkerFailed(current_->round(), *stuck_)});
  }
  OnFewerWorkers(now, effects);
}

void AgentMachine::OnUninterruptible(const rendezvous::WorkerFailure& failure, SteadyTime now, Effects* effects) {
  if (state_ == State::kRunning) ReportFailure(failure, now, effects);
}

void AgentMachine::LeaveStuck(SteadyTime now, Effects* effects) {
  OnFatal(absl::StrCat(rendezvous::DescribeFailure(*stuck_),
                       "; it may hold its device: this node leaves the job, and its host may have to be restarted"),
          now, effects);
}

void AgentMachine::OnSuspended(int32_t local_rank, const worker_contract::LinkSuspended& line, SteadyTime now,
                               Effects* effects) {
  if (line.round != suspend_.round || !workers_.Suspended(local_rank, line.step)) return;
  OnFewerWorkers(now, effects);
}

void AgentMachine::SuspendNow(Effects* effects) {
  suspend_now_.Clear();
  if (!std::exchange(suspend_.at_step_end, false)) return;
  const LocalRanks workers = workers_.In(WorkerSet::State::kSuspending);
  if (!workers.empty()) effects->push_back(effect::SendToWorkers{workers, suspend_});
}

void AgentMachine::StopSurvivors(const std::string& reason, SteadyTime now, Effects* effects) {
  LocalRanks workers = workers_.In(WorkerSet::State::kSuspended);
  for (const int32_t rank : workers_.In(WorkerSet::State::kSuspending)) workers.push_back(rank);
  if (workers.empty()) return;
  std::sort(workers.begin(), workers.end());
  effects->push_back(effect::Print{LogLevel::kWarning,
                                   absl::StrCat("stopping ", RanksText(workers), ", which can't go on: ", reason)});
  StopThese(std::move(workers), SIGTERM, reason, now, effects);
}

void AgentMachine::KillSurvivors(const LocalRanks& ranks, SteadyTime now, Effects* effects) {
  workers_.Stop(ranks);
  effects->push_back(effect::KillWorkers{ranks});
  stopping_.OnKilled(now);
}

void AgentMachine::ReportLostSurvivors(const std::vector<WorkerEnd>& ends, Effects* effects) {
  for (const WorkerEnd& end : ends) {
    const WorkerSet::State worker = workers_.state(end.local_rank);
    if (worker != WorkerSet::State::kSuspending && worker != WorkerSet::State::kSuspended) continue;
    effects->push_back(effect::Print{
        LogLevel::kWarning, absl::StrCat(end.failure ? rendezvous::DescribeFailure(*end.failure)
                                                     : absl::StrCat(RanksText({end.local_rank}), " exited with 0"),
                                         ", while it was suspended; a new process will take its place")});
  }
}

void AgentMachine::OnFewerWorkers(SteadyTime now, Effects* effects) {
  if (state_ == State::kStopping) {
    if (Stopped()) OnStopped(effects);
    return;
  }
  if (state_ != State::kIdle || !workers_.Quiet()) return;
  stopping_.Clear();
  if (deferred_) return OnAssign(*std::exchange(deferred_, std::nullopt), now, effects);
  effects->push_back(effect::SweepOrphans{});
  if (line_.up()) {
    SendReady(current_->round(), effects);
  } else {
    // A Join sent before this counted one more worker.
    joined_as_ = rendezvous::Join::PHASE_STOPPING;
  }
}

void AgentMachine::OnStopped(Effects* effects) {
  stopping_.Clear();
  line_.SetHasWorkers(false);
  const bool was_waiting_to_open = state_ == State::kStopping && !store_;
  state_ = State::kStopping;
  if (leave_.running() || finish_wait_.running()) return;
  if (exit_) {
    effects->push_back(effect::SweepOrphans{});
    state_ = State::kDone;
    effects->push_back(effect::ShowStatus{""});
    effects->push_back(*exit_);
    return;
  }
  if (was_waiting_to_open) return;
  effects->push_back(effect::SweepOrphans{});
  store_.reset();
  effects->push_back(effect::OpenStore{});
}

SteadyTime AgentMachine::WorkersMayRunUntil() const {
  // After a verdict no round of this job follows.
  const bool bounded = !workers_.Quiet() && !(exit_ && exit_->verdict);
  return bounded ? line_.lease().KillAt() : SteadyTime::InfiniteFuture();
}

SteadyTime AgentMachine::CutOffAt() const {
  return state_ == State::kRunning ? line_.lease().StopAt() : SteadyTime::InfiniteFuture();
}

// Signals to the launcher, and its exit.

void AgentMachine::OnSignal(const Signal& signal, SteadyTime now, Effects* effects) {
  if (state_ == State::kDone) return;
  const auto& warnings = settings_.warning_signals;
  if (std::find(warnings.begin(), warnings.end(), signal.number) != warnings.end())
    return OnWarning(signal, now, effects);
  if (exit_) {
    // A second request, or one while stopping for another reason, skips the grace period. A batch system that ends the
    // job sends its own SIGKILL.
    if (state_ == State::kStopping && !signal.from_batch_system) {
      stopping_.Hurry(now);
      if (leave_.running()) leave_.Set(now);
      if (finish_wait_.running()) finish_wait_.Set(now);
      OnDeadline(now, effects);
    }
    return;
  }
  std::string text = absl::StrCat("received ", signal.text);
  if (workers_.AnyAlive()) {
    absl::StrAppend(&text, "; workers have ", absl::FormatDuration(settings_.shutdown_timeout), " to save and end");
    if (signal.number == SIGINT) absl::StrAppend(&text, "; press Ctrl-C again to kill them now");
  }
  effects->push_back(effect::Print{LogLevel::kWarning, std::move(text)});
  leave_signal_ = signal.number;
  if (signal.from_batch_system && settings_.batch && settings_.join.settings().max_nodes() > 1) {
    leave_.Set(now + kSignalSpread);
  } else {
    SendLeaveForSignal(now, effects);
  }
  StopAndExit({worker_contract::ExitCodeOfSignal(signal.number), std::nullopt, {}},
              Delivered(signal) ? std::nullopt : std::optional<int>(signal.number),
              absl::StrCat("received ", signal.text), now, effects);
}

void AgentMachine::OnWarning(const Signal& signal, SteadyTime now, Effects* effects) {
  std::string text = absl::StrCat("received ", signal.text);
  const LocalRanks workers = workers_.Alive();
  if (workers.empty()) {
    absl::StrAppend(&text, "; no workers to pass it on to");
  } else if (Delivered(signal)) {
    absl::StrAppend(&text, "; the workers have it too");
  } else {
    absl::StrAppend(&text, "; passed on to the workers");
    effects->push_back(effect::SignalWorkers{signal.number, workers});
  }
  if (settings_.batch) {
    absl::StrAppend(&text, "; ",
                    signal.time_left == absl::InfiniteDuration()
                        ? "no end time known"
                        : absl::StrCat("the job's time ends in ", RemainingText(signal.time_left)),
                    "; at its end workers have ", absl::FormatDuration(settings_.shutdown_timeout), " from SIGTERM on");
  }
  effects->push_back(effect::Print{LogLevel::kWarning, std::move(text)});
  const LocalRanks connected = workers_.CanCheckpoint();
  warned_end_ = now + signal.time_left;
  warned_.clear();
  std::set_difference(workers.begin(), workers.end(), connected.begin(), connected.end(), std::back_inserter(warned_));
  RequestCheckpoint(connected, now, effects);
}

void AgentMachine::RequestCheckpoint(const LocalRanks& workers, SteadyTime now, Effects* effects) {
  if (workers.empty()) return;
  const absl::Duration most = absl::Seconds(1e9);  // maximum that a worker link line can hold
  effects->push_back(effect::SendToWorkers{
      workers, worker_contract::LinkCheckpointNow{std::clamp(warned_end_ - now, absl::ZeroDuration(), most)}});
}

bool AgentMachine::Delivered(const Signal& signal) const {
  return signal.from_batch_system && settings_.batch && settings_.batch->signals_every_process;
}

void AgentMachine::SendLeaveForSignal(SteadyTime now, Effects* effects) {
  SendLeave(absl::StrCat("received ", SignalName(leave_signal_)), settings_.replaced ? 0 : leave_signal_, now, effects);
  if (settings_.has_end_command && !settings_.is_only_node && line_.up()) finish_wait_.Set(now + kFinishWait);
}

void AgentMachine::SendLeave(const std::string& reason, int signal, SteadyTime now, Effects* effects) {
  if (line_.state() == ServerLine::State::kDown) return;
  const bool has_workers = workers_.AnyAlive();
  line_.OnLeave(has_workers, now);
  effects->push_back(effect::Send{rendezvous::NewLeave(reason, has_workers, signal)});
}

void AgentMachine::OnFatal(const std::string& reason, SteadyTime now, Effects* effects) {
  if (state_ == State::kDone || exit_) return;
  effects->push_back(effect::Print{LogLevel::kError, reason});
  SendLeave(reason, 0, now, effects);
  StopAndExit({1, std::nullopt, {}}, SIGTERM, reason, now, effects);
}

void AgentMachine::StopAndExit(effect::Exit exit, std::optional<int> signal, const std::string& reason, SteadyTime now,
                               Effects* effects) {
  exit_ = std::move(exit);
  exit_->reason = reason;
  if (settings_.is_only_node) exit_->runs_end_command = true;
  line_.OnEnding();
  Stop(signal, reason, now, effects);
}

// Deadlines.

void AgentMachine::OnDeadline(SteadyTime now, Effects* effects) {
  if (CutOffAt() <= now) StopBecauseCutOff(now, effects);
  KillOrAbandon(now, effects);
  if (suspend_now_.Take(now)) SuspendNow(effects);
  if (failures_.Take(now)) ReportFailure(failures_.cause(), now, effects);
  if (broken_due_.Take(now)) ReportFailure(*std::exchange(broken_, std::nullopt), now, effects);
  if (stuck_due_.Take(now)) LeaveStuck(now, effects);
  if (leave_.Take(now)) {
    SendLeaveForSignal(now, effects);
    if (Stopped()) OnStopped(effects);
  }
  if (finish_wait_.Take(now) && Stopped()) OnStopped(effects);
  if (line_.TakeSilence(now)) LeaveSilentServer(now, effects);
  if (line_.TakeHeartbeat(now)) effects->push_back(effect::Send{rendezvous::Heartbeat{}});
  if (line_.TakeGivingUp(now)) GiveUpServer(now, effects);
  reports_.OnDeadline(now, effects);
}

SteadyTime AgentMachine::NextDeadline() const {
  return std::min({line_.NextDeadline(), reports_.NextDeadline(), failures_.NextDeadline(),
                   stopping_.NextDeadline(WorkersMayRunUntil()), CutOffAt(), leave_.at(), finish_wait_.at(),
                   suspend_now_.at(), broken_due_.at(), stuck_due_.at()});
}

const rendezvous::Hang* AgentMachine::OpenHang() const {
  return hang_ && current_ && hang_->round() == current_->round() ? &*hang_ : nullptr;
}

bool AgentMachine::MayStartWorkers(SteadyTime now) const {
  return state_ == State::kRunning && now < line_.lease().StopAt();
}

std::string AgentMachine::Self() const {
  return absl::StrCat(settings_.join.host(), " (", settings_.join.address(), ")");
}

std::string AgentMachine::RanksText(const LocalRanks& workers) const {
  return ddprun::RanksText(workers, current_->base_rank());
}

}  // namespace ddprun::launcher
