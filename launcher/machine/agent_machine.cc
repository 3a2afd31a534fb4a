#include "launcher/machine/agent_machine.h"

#include <signal.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/endpoint.h"
#include "base/text.h"
#include "rendezvous/core/failure_text.h"

namespace ddprun::launcher {
namespace {

using rendezvous::Join;

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

void AgentMachine::OnConnected(SteadyTime now, Effects* effects, const std::string& leader) {
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
  if (exit_) return;
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
  StopAndExit({1, std::nullopt, {}}, SIGTERM, "the rendezvous server is lost", now, effects);
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
  if (const auto* m = std::get_if<rendezvous::Finish>(&message)) return OnFinish(m->verdict(), now, effects);
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
    // A Ready that was told again crossed the StopRound for which survivors are being stopped. As if the workers of
    // this round had ended at once: its Ready follows.
    current_ = assignment;
    reported_.reset();
    return;
  }
  if (state_ != State::kIdle) return;
  const LocalRanks kept = workers_.In(WorkerSet::State::kSuspended);
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
  // Survivors of any node: this one's workers run the same program, though they may not have connected yet when the
  // round ends. Otherwise a node that has just joined would make the server restart all.
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
  // An Assign that was to be confirmed is over: as if its workers had ended at once.
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
  // Unless a suspended worker has to end first: then the Ready that follows says it.
  if (state_ == State::kIdle && workers_.Quiet() && store_) SendReady(current_->round(), effects);
}

void AgentMachine::OnFinish(const rendezvous::Verdict& verdict, SteadyTime now, Effects* effects) {
  // A node that has not yet reported that it leaves ends as the job does.
  if (exit_ && !leave_.running()) return;
  leave_.Clear();
  // Another node received a stop signal, as this one did: no worker failed.
  const auto cause = rendezvous::FirstCause(verdict);
  if (exit_ && cause && cause->rank() < 0 && cause->signal() != 0) {
    if (Stopped()) OnStopped(effects);
    return;
  }
  if (state_ == State::kIdle && !verdict.succeeded()) reports_.ReportFailedWait(effects);
  failures_.Forget();
  StopAndExit({verdict.exit_code(), verdict, failures_.siblings()}, SIGTERM, verdict.reason(), now, effects);
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

void AgentMachine::OnDeadline(SteadyTime now, Effects* effects) {
  if (CutOffAt() <= now) StopBecauseCutOff(now, effects);
  KillOrAbandon(now, effects);
  if (suspend_now_.Take(now)) SuspendNow(effects);
  if (failures_.Take(now)) ReportFailure(failures_.cause(), now, effects);
  if (broken_due_.Take(now)) ReportFailure(*std::exchange(broken_, std::nullopt), now, effects);
  if (leave_.Take(now)) {
    SendLeaveForSignal(now, effects);
    if (Stopped()) OnStopped(effects);
  }
  if (line_.TakeSilence(now)) LeaveSilentServer(now, effects);
  if (line_.TakeHeartbeat(now)) effects->push_back(effect::Send{rendezvous::Heartbeat{}});
  if (line_.TakeGivingUp(now)) GiveUpServer(now, effects);
  reports_.OnDeadline(now, effects);
}

SteadyTime AgentMachine::NextDeadline() const {
  return std::min({line_.NextDeadline(), reports_.NextDeadline(), failures_.NextDeadline(),
                   stopping_.NextDeadline(WorkersMayRunUntil()), CutOffAt(), leave_.at(), suspend_now_.at(),
                   broken_due_.at()});
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
