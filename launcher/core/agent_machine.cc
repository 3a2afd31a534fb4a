#include "launcher/core/agent_machine.h"

#include <signal.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/core/endpoint.h"
#include "launcher/core/wait_text.h"
#include "rendezvous/core/failure_text.h"

namespace ddprun::launcher {
namespace {

using rendezvous::Join;

// A line about what is waited for comes this long after the wait began, and then at the second interval.
constexpr absl::Duration kFirstReport = absl::Seconds(10);
constexpr absl::Duration kNextReports = absl::Minutes(1);
// A worker that SIGKILL does not end within this hangs in the kernel: go on without it.
constexpr absl::Duration kAbandonAfter = absl::Seconds(30);
// The first rank to join gives the others this long, where it comes late itself.
constexpr absl::Duration kJoinSpread = absl::Seconds(3);
// A store of another node that takes no connection for so long can't be reached.
constexpr absl::Duration kStoreTimeout = absl::Seconds(5);
// A store that refuses may be that of a round that ended at once: the word that it is over may be on its way.
constexpr absl::Duration kStoreRefusalWait = absl::Seconds(1);

// Whether a worker that ended so may have done it because of a signal to stop that it or one of its peers got.
bool MayBeASignalsWork(FailureClass failure_class) { return failure_class >= FailureClass::kOwnError; }

}  // namespace

AgentMachine::AgentMachine(AgentSettings settings, SteadyTime now)
    : settings_(std::move(settings)), lease_(settings_.join.settings.heartbeat_timeout), started_(now) {}

void AgentMachine::Start(Effects* effects) {
  effects->push_back(effect::OpenStore{});
  give_up_at_ = started_ + settings_.join.settings.join_timeout;
  next_report_ = started_ + kFirstReport;
}

void AgentMachine::OnConnected(SteadyTime now, Effects* effects) {
  if (state_ == State::kDone || (exit_ && state_ == State::kStopping)) return;
  link_ = Link::kJoining;
  // A server that takes the connection but never answers the Join is as silent as one that misses heartbeats.
  silent_at_ = lease_.SilentAt(now);
  SendJoin(now, effects);
}

void AgentMachine::SendJoin(SteadyTime now, Effects* effects) {
  Join join = settings_.join;
  join.incarnation = ++incarnation_;
  join.current = current_;
  switch (state_) {
    case State::kRunning: join.phase = Join::Phase::kRunning; break;
    case State::kSucceeded: join.phase = Join::Phase::kSucceeded; break;
    case State::kStopping: join.phase = Join::Phase::kStopping; break;
    default: join.phase = Join::Phase::kIdle; break;
  }
  // A failure that the server may not have heard of has to arrive before the node counts as idle.
  if (reported_) join.phase = Join::Phase::kStopping;
  joined_as_ = join.phase;
  lease_.Asked(now);
  effects->push_back(effect::Send{std::move(join)});
}

void AgentMachine::OnDisconnected(const std::string& reason, bool permanent, std::optional<SteadyTime> refused,
                                  SteadyTime now, Effects* effects) {
  if (state_ == State::kDone) return;
  if (link_ != Link::kDown) lease_.StreamOver(false);
  if (refused) lease_.Refused(*refused);
  if (permanent && !exit_) {
    link_ = Link::kDown;
    effects->push_back(effect::Print{LogLevel::kError, reason});
    exit_ = effect::Exit{1, std::nullopt, {}};
    return Stop(SIGTERM, now, effects);
  }
  LostStream(reason, now, effects);
}

void AgentMachine::LostStream(const std::string& reason, SteadyTime now, Effects* effects) {
  const bool was_up = link_ == Link::kUp;
  link_ = Link::kDown;
  last_disconnect_ = reason;
  leaving_ = false;
  next_heartbeat_ = silent_at_ = SteadyTime::InfiniteFuture();
  if (exit_) return;
  if (was_up) {
    give_up_at_ = now + settings_.reconnect_timeout;
    effects->push_back(effect::Print{
        LogLevel::kWarning,
        absl::StrCat("lost the rendezvous server (", reason, "); ", state_ == State::kRunning ? "workers run on; " : "",
                     "trying again for ", absl::FormatDuration(settings_.reconnect_timeout))});
  } else if (state_ == State::kConnecting) {
    effects->push_back(effect::ShowStatus{WaitText(now)});
  }
}

void AgentMachine::OnServerMessage(const rendezvous::ServerMessage& message, SteadyTime now, Effects* effects) {
  if (state_ == State::kDone || link_ == Link::kDown) return;  // it is of a stream that was given up
  const bool is_ack = std::holds_alternative<rendezvous::HeartbeatAck>(message);
  // Whatever comes first on a stream answers its Join.
  if (is_ack || link_ == Link::kJoining) lease_.Answered();
  // It was on the way for so long that what it says may be over: a round may have begun without this node.
  if (lease_.StopAt() <= now) return LeaveSilentServer(now, effects);
  const bool beats = heartbeat_interval_ != absl::InfiniteDuration() || link_ == Link::kJoining;
  if (beats && (!exit_ || leaving_)) silent_at_ = lease_.SilentAt(now);
  if (const auto* m = std::get_if<rendezvous::Welcome>(&message)) return OnWelcome(*m, now, effects);
  if (const auto* m = std::get_if<rendezvous::Waiting>(&message)) return OnWaiting(*m, now, effects);
  if (const auto* m = std::get_if<rendezvous::Assign>(&message)) return OnAssign(m->assignment, now, effects);
  if (const auto* m = std::get_if<rendezvous::StopRound>(&message)) return OnStopRound(*m, now, effects);
  if (const auto* m = std::get_if<rendezvous::Finish>(&message)) return OnFinish(m->verdict, now, effects);
  if (const auto* m = std::get_if<rendezvous::Rejected>(&message)) {
    if (exit_) return;
    effects->push_back(effect::Print{LogLevel::kError, m->reason});
    exit_ = effect::Exit{2, std::nullopt, {}};
    Stop(SIGTERM, now, effects);
  }
}

void AgentMachine::OnWelcome(const rendezvous::Welcome& welcome, SteadyTime now, Effects* effects) {
  if (exit_) return;
  link_ = Link::kUp;
  give_up_at_ = SteadyTime::InfiniteFuture();
  heartbeat_interval_ = welcome.heartbeat_interval;
  next_heartbeat_ = now + heartbeat_interval_;
  if (heartbeat_interval_ == absl::InfiniteDuration()) {
    silent_at_ = SteadyTime::InfiniteFuture();
    lease_.Unlimited();
  }
  if (ever_up_) {
    effects->push_back(effect::Print{LogLevel::kWarning,
                                     absl::StrCat("reached the rendezvous server at ", settings_.server, " again")});
  }
  ever_up_ = true;
  if (state_ == State::kConnecting) BecomeIdle(now);
  if (reported_) {
    effects->push_back(effect::Send{rendezvous::WorkerFailed{current_->round, *reported_}});
    if (state_ == State::kIdle) effects->push_back(effect::Send{rendezvous::Ready{current_->round, 0}});
  } else if (joined_as_ == Join::Phase::kRunning && state_ == State::kSucceeded) {
    // The workers ended after the Join was sent, which told otherwise.
    effects->push_back(effect::Send{rendezvous::GroupSucceeded{current_->round}});
  } else if (joined_as_ != Join::Phase::kIdle && state_ == State::kIdle) {
    effects->push_back(effect::Send{rendezvous::Ready{current_->round, 0}});
  }
}

void AgentMachine::BecomeIdle(SteadyTime now) {
  state_ = State::kIdle;
  waiting_.reset();
  next_report_ = now + kFirstReport;
}

void AgentMachine::OnWaiting(const rendezvous::Waiting& waiting, SteadyTime now, Effects* effects) {
  if (state_ != State::kIdle) return;
  waiting_ = waiting;
  waiting_at_ = now;
  effects->push_back(effect::ShowStatus{WaitText(now)});
}

void AgentMachine::OnAssign(const rendezvous::Assignment& assignment, SteadyTime now, Effects* effects) {
  if (state_ != State::kIdle || (current_ && assignment.round <= current_->round)) return;
  state_ = State::kRunning;
  current_ = assignment;
  running_ = settings_.join.slots;
  ranks_joined_ = 0;
  reported_.reset();
  siblings_.clear();
  waiting_.reset();
  round_started_ = now;
  next_report_ = SteadyTime::InfiniteFuture();
  store_problem_ = absl::StrCat("no answer for ", absl::FormatDuration(kStoreTimeout));
  if (assignment.group_rank > 0) store_late_at_ = now + kStoreTimeout;
  effects->push_back(effect::ShowStatus{""});
  effects->push_back(
      effect::Print{assignment.group_world_size > 1 ? LogLevel::kWarning : LogLevel::kInfo, DescribeRound(assignment)});
  effects->push_back(effect::SpawnWorkers{assignment});
}

std::string AgentMachine::Self() const { return absl::StrCat(settings_.join.host, " (", settings_.join.address, ")"); }

std::string AgentMachine::DescribeRound(const rendezvous::Assignment& assignment) const {
  const Join& join = settings_.join;
  std::string text = absl::StrCat("round ", assignment.round, ": ", Self(), " is node ", assignment.group_rank, " of ",
                                  assignment.group_world_size, ", ");
  const int32_t last = assignment.base_rank + join.slots - 1;
  absl::StrAppend(&text, join.slots == 1 ? "rank " : "ranks ", assignment.base_rank);
  if (join.slots > 1) absl::StrAppend(&text, "-", last);
  absl::StrAppend(&text, " of ", assignment.world_size, "; master ",
                  Endpoint{assignment.master_addr, assignment.master_port}.ToString(), "; ", assignment.reason);
  return text;
}

void AgentMachine::OnStopRound(const rendezvous::StopRound& stop, SteadyTime now, Effects* effects) {
  if (exit_ || !current_ || stop.round < current_->round) return;
  reported_.reset();  // the server knows
  switch (state_) {
    case State::kRunning:
    case State::kSucceeded:
      effects->push_back(effect::Print{LogLevel::kWarning,
                                       absl::StrCat("stopping this node's workers for a new round: ", stop.reason)});
      return Stop(SIGTERM, now, effects);
    case State::kIdle:
      // It was ready already, but the server does not know.
      effects->push_back(effect::Send{rendezvous::Ready{stop.round, 0}});
      return;
    case State::kConnecting:
    case State::kStopping:  // Ready follows by itself
    case State::kDone: return;
  }
}

void AgentMachine::OnFinish(const rendezvous::Verdict& verdict, SteadyTime now, Effects* effects) {
  // A node that has not said yet that it leaves ends as the job does.
  if (exit_ && leave_at_ == SteadyTime::InfiniteFuture()) return;
  leave_at_ = SteadyTime::InfiniteFuture();
  if (state_ == State::kIdle && !verdict.succeeded && waiting_ && !waiting_->spare) {
    // The server knows who came, this launcher who was to come, and where those may have looked in vain.
    const std::vector<std::string> absent = AbsentHosts(*waiting_, settings_.expected_hosts);
    if (!absent.empty()) {
      effects->push_back(effect::Print{LogLevel::kError, absl::StrCat("timed out waiting for ", HostsText(absent))});
    }
    if (!serving_.empty()) effects->push_back(effect::Print{LogLevel::kWarning, serving_});
  }
  exit_ = effect::Exit{verdict.exit_code, verdict, siblings_};
  Stop(SIGTERM, now, effects);
}

void AgentMachine::OnWorkersEnded(const std::vector<WorkerEnd>& ends, size_t cause, SteadyTime now, Effects* effects) {
  if (CutOffAt() <= now) StopBecauseCutOff(now, effects);  // that is why they ended, if this launcher slept
  running_ = std::max<int>(0, running_ - static_cast<int>(ends.size()));
  if (state_ == State::kRunning) {
    for (size_t i = 0; i < ends.size(); ++i) {
      if (ends[i].failure && i != cause) siblings_.push_back(*ends[i].failure);
    }
    if (cause < ends.size() && ends[cause].failure) return OnFailure(ends[cause], now, effects);
    if (running_ > 0 || held_) return;
    state_ = State::kSucceeded;
    missing_at_ = store_late_at_ = SteadyTime::InfiniteFuture();
    effects->push_back(effect::SweepOrphans{});
    if (link_ == Link::kUp) effects->push_back(effect::Send{rendezvous::GroupSucceeded{current_->round}});
    return;
  }
  if (state_ == State::kStopping && running_ == 0) OnStopped(now, effects);
}

void AgentMachine::OnFailure(const WorkerEnd& cause, SteadyTime now, Effects* effects) {
  if (!held_) {
    held_ = cause;
    held_until_ = now + kSignalSpread;
  } else if (held_->failure_class >= FailureClass::kPeerError && cause.failure_class < held_->failure_class) {
    siblings_.push_back(*held_->failure);
    held_ = cause;
  } else {
    siblings_.push_back(*cause.failure);
  }
  if (!settings_.batch || !MayBeASignalsWork(held_->failure_class)) TellHeldFailure(now, effects);
}

void AgentMachine::TellHeldFailure(SteadyTime now, Effects* effects) {
  ReportFailure(*held_->failure, effects);
  Stop(SIGTERM, now, effects);
}

void AgentMachine::OnSpawnFailed(int started, const rendezvous::WorkerFailure& failure, SteadyTime now,
                                 Effects* effects) {
  if (state_ != State::kRunning) return;
  running_ = started;
  ReportFailure(failure, effects);
  Stop(SIGTERM, now, effects);
}

void AgentMachine::ReportFailure(const rendezvous::WorkerFailure& failure, Effects* effects) {
  reported_ = failure;
  effects->push_back(effect::Print{LogLevel::kWarning, DescribeFailure(failure)});
  if (link_ == Link::kUp) effects->push_back(effect::Send{rendezvous::WorkerFailed{current_->round, failure}});
}

void AgentMachine::OnRanksJoined(int joined, SteadyTime now, Effects*) {
  if (state_ != State::kRunning || joined == ranks_joined_) return;
  const bool first = ranks_joined_ == 0;
  ranks_joined_ = joined;
  if (joined >= current_->world_size) {
    missing_at_ = SteadyTime::InfiniteFuture();
  } else if (first) {
    missing_at_ = std::max(round_started_ + kFirstReport, now + kJoinSpread);
  }
}

void AgentMachine::OnStoreReached(const absl::Status& status, SteadyTime now, Effects*) {
  if (store_late_at_ == SteadyTime::InfiniteFuture()) return;
  store_late_at_ = status.ok() ? SteadyTime::InfiniteFuture() : std::min(store_late_at_, now + kStoreRefusalWait);
  store_problem_ = std::string(status.message());
}

void AgentMachine::ReportStore(Effects* effects) {
  const std::string master = current_->master_host.empty() ? "node 0" : current_->master_host;
  effects->push_back(effect::Print{
      LogLevel::kWarning,
      absl::StrCat(
          Self(), " can't reach the store of round ", current_->round, " at ",
          Endpoint{current_->master_addr, current_->master_port}.ToString(), " on ", master, ": ", store_problem_,
          "; its workers can't either: set --local-addr on ", master,
          " to an address that the others reach, or open that port (--port-range keeps all ports within a range)")});
}

void AgentMachine::OnDeadline(SteadyTime now, Effects* effects) {
  if (CutOffAt() <= now) StopBecauseCutOff(now, effects);
  if (KillAt() <= now && state_ == State::kStopping) {
    if (!killed_) {
      killed_ = true;
      kill_at_ = now + kAbandonAfter;
      effects->push_back(effect::KillWorkers{});
    } else {
      effects->push_back(effect::Print{
          LogLevel::kError,
          absl::StrCat(running_,
                       " workers are still alive after SIGKILL (uninterruptible?); continuing without them")});
      running_ = 0;
      OnStopped(now, effects);
    }
  }
  if (held_until_ <= now) TellHeldFailure(now, effects);
  if (leave_at_ <= now) {
    leave_at_ = SteadyTime::InfiniteFuture();
    SayLeave(leave_reason_, now, effects);
    if (running_ == 0) OnStopped(now, effects);
  }
  if (silent_at_ <= now) LeaveSilentServer(now, effects);
  if (next_heartbeat_ <= now && link_ == Link::kUp) {
    next_heartbeat_ = now + heartbeat_interval_;
    lease_.Asked(now);
    effects->push_back(effect::Send{rendezvous::Heartbeat{}});
  }
  if (give_up_at_ <= now && !exit_ && state_ != State::kDone) {
    give_up_at_ = SteadyTime::InfiniteFuture();
    effects->push_back(effect::Print{
        LogLevel::kError, absl::StrCat("no rendezvous server at ", settings_.server, " for ",
                                       absl::FormatDuration(ever_up_ ? settings_.reconnect_timeout
                                                                     : settings_.join.settings.join_timeout),
                                       "; ", Self(), ": ", last_disconnect_.empty() ? "no answer" : last_disconnect_,
                                       "; start it there, or set --rdzv-endpoint to where it is")});
    exit_ = effect::Exit{1, std::nullopt, {}};
    Stop(SIGTERM, now, effects);
  }
  if (store_late_at_ <= now) {
    store_late_at_ = SteadyTime::InfiniteFuture();
    ReportStore(effects);
  }
  if (missing_at_ <= now) {
    missing_at_ = now + kNextReports;
    effects->push_back(effect::ReportMissingRanks{});
  }
  if (next_report_ <= now) {
    next_report_ = now + kNextReports;
    if (!(waiting_ && waiting_->spare)) effects->push_back(effect::Print{LogLevel::kWarning, WaitText(now)});
  }
}

void AgentMachine::LeaveSilentServer(SteadyTime now, Effects* effects) {
  lease_.StreamOver(true);
  LostStream(absl::StrCat(settings_.server, " is silent"), now, effects);
  effects->push_back(effect::ResetConnection{});
}

std::string AgentMachine::WaitText(SteadyTime now) const {
  if (waiting_) {
    rendezvous::Waiting waiting = *waiting_;
    waiting.remaining = std::max(absl::ZeroDuration(), waiting.remaining - (now - waiting_at_));
    return absl::StrCat(WaitingText(waiting, settings_.expected_hosts), serving_.empty() ? "" : "; ", serving_);
  }
  if (link_ != Link::kUp) {
    return absl::StrCat("waiting for the rendezvous server at ", settings_.server,
                        last_disconnect_.empty() ? "" : absl::StrCat("; ", Self(), ": ", last_disconnect_));
  }
  return absl::StrCat("waiting for the other nodes of job ", settings_.join.job_id);
}

SteadyTime AgentMachine::NextDeadline() const {
  return std::min({next_heartbeat_, silent_at_, give_up_at_, KillAt(), CutOffAt(), next_report_, missing_at_,
                   store_late_at_, held_until_, leave_at_});
}

}  // namespace ddprun::launcher
