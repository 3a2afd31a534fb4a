#include "rendezvous/server/driver.h"

#include <algorithm>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/process.h"
#include "base/text.h"
#include "rendezvous/core/effect.h"
#include "rendezvous/core/fence.h"
#include "rendezvous/core/heartbeats.h"
#include "rendezvous/core/job_history.h"
#include "rendezvous/core/job_record.h"
#include "rendezvous/core/limits.h"

namespace ddprun::rendezvous {
namespace {

// Returns the log line for a message; empty for messages that are not logged. Nodes of a job that receive the same
// message yield the same line.
struct Describer {
  const Tell& tell;

  std::string operator()(const Assign& assign) const {
    const Assignment& a = assign.assignment();
    if (a.group_rank() != 0) return "";
    return absl::StrCat("job ", tell.job_id, ": round ", a.round(), " assigned to ",
                        Counted(a.group_world_size(), "node"), ", ", Counted(a.world_size(), "worker"), "; store at ",
                        a.master_addr(), " port ", a.master_port(), " (", a.reason(), ")");
  }
  std::string operator()(const StopRound& stop) const {
    return absl::StrCat("job ", tell.job_id, ": stopping round ", stop.round(), ": ", stop.reason());
  }
  std::string operator()(const Finish&) const { return ""; }  // its event is logged instead
  std::string operator()(const Rejected& rejected) const {
    return absl::StrCat("job ", tell.job_id, ": rejected a launcher: ", rejected.reason());
  }
  std::string operator()(const ExcludedFromRound& without) const {
    return absl::StrCat("job ", tell.job_id, ": ", without.reason());
  }
  std::string operator()(const Welcome&) const { return ""; }  // the driver logs joins, with the host's name
  std::string operator()(const HeartbeatAck&) const { return ""; }
  std::string operator()(const Waiting&) const { return ""; }
  std::string operator()(const Hang&) const { return ""; }  // its event is logged instead
  std::string operator()(const v1::Inspect&) const { return ""; }
};

// Returns the log line for the end of a job, a hang or a command; empty for other events, whose messages are logged.
std::string Describe(const Event& event) {
  const std::string job = absl::StrCat("job ", event.job_id());
  const std::string& kind = event.kind();
  if (kind == event_kind::kJobFinished) return absl::StrCat(job, " finished: ", event.detail());
  if (kind == event_kind::kJobFailed) return absl::StrCat(job, " failed: ", event.detail());
  if (kind == event_kind::kJobStopped) return absl::StrCat(job, " ", event.detail());
  for (const char* plain :
       {event_kind::kJobResized, event_kind::kNodeKicked, event_kind::kRoundHung, event_kind::kRoundContinued}) {
    if (kind == plain) return absl::StrCat(job, ": ", event.detail());
  }
  if (kind == event_kind::kHostDrained || kind == event_kind::kHostUndrained) return event.detail();
  return "";
}

// Returns the log lines for the effects, one per change of a job's state, not one per node.
std::vector<std::string> DescribeEffects(const Effects& effects) {
  std::vector<std::string> lines;
  for (const Effect& effect : effects) {
    const auto* tell = std::get_if<Tell>(&effect);
    const auto* report = std::get_if<Report>(&effect);
    std::string line = tell != nullptr     ? std::visit(Describer{*tell}, tell->message)
                       : report != nullptr ? Describe(report->event)
                                           : "";
    // A job's nodes receive their messages one after the other.
    if (!line.empty() && (lines.empty() || lines.back() != line)) lines.push_back(std::move(line));
  }
  return lines;
}

// The core cannot know that nodes are missing because this process ran out of file descriptors.
void AppendLocalCause(Effects* effects) {
  if (!RanOutOfFiles()) return;
  for (Effect& effect : *effects) {
    Report* const report = std::get_if<Report>(&effect);
    if (report != nullptr && report->event.kind() == event_kind::kJobFailed && !report->event.has_failure()) {
      absl::StrAppend(report->event.mutable_detail(), "; the rendezvous server is ", OutOfFilesText());
    }
    Tell* const tell = std::get_if<Tell>(&effect);
    Finish* const finish = tell == nullptr ? nullptr : std::get_if<Finish>(&tell->message);
    if (finish == nullptr || finish->verdict().succeeded() || finish->verdict().has_first_cause()) continue;
    absl::StrAppend(finish->mutable_verdict()->mutable_reason(), "; the rendezvous server is ", OutOfFilesText());
  }
}

constexpr char kNotLeader[] = "this server is no longer the leader; try again";
constexpr char kShuttingDown[] = "this server is shutting down";

absl::Status StatusOf(const Close& close) {
  switch (close.why) {
    case Close::Why::kRefused: return absl::FailedPreconditionError(close.reason);
    case Close::Why::kFull: return absl::ResourceExhaustedError(close.reason);
    case Close::Why::kReplaced: return absl::AbortedError(close.reason);
    case Close::Why::kLost: return absl::UnavailableError(close.reason);
  }
  return absl::InternalError(close.reason);
}

}  // namespace

Driver::Driver(Host host) : Driver(host, SavedState(), nullptr) {}

Driver::Driver(Host host, SavedState saved, StateStore* store, EventLog* events)
    : host_(host),
      process_name_(host == Host::kLauncher ? ProcessName() : ""),
      store_(store),
      events_(events),
      registry_(SteadyNow(), store != nullptr, MaxReportedRound(absl::Now())) {
  {
    MutexLock lock(&mutex_);
    if (events != nullptr) events->Restore(Timeline(saved.jobs), saved.earlier_servers);
    registry_.SetWallTimeAtStart(WallTimeAtStart());
    if (store != nullptr) registry_.Restore(saved);
  }
  if (store != nullptr) {
    store->SetErrorHandler([this](const std::string& trouble) { OnStoreError(trouble); });
    store->SetJobErrorHandler(
        [this](const std::string& job_id, const std::string& trouble) { OnJobStoreError(job_id, trouble); });
  }
  timer_thread_ = std::thread([this] { RunTimer(); });
}

Driver::~Driver() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
  }
  timer_.NotifyAll();
  timer_thread_.join();
}

void Driver::OnMessage(const std::shared_ptr<Session>& session, const LauncherMessage& message) {
  {
    MutexLock lock(&mutex_);
    // Checked after the message was read: an answer proves that this server was the leader when the launcher sent it
    // (protocol 4.5).
    if (!OwnedLocked()) return;
    Peer& peer = peers_[session.get()];
    peer.heard = SteadyNow();
    const Join* join = std::get_if<Join>(&message);
    if (peer.state == Peer::State::kEnded) return;
    if (peer.state == Peer::State::kNew) {
      if (join != nullptr) {
        JoinLocked(session, &peer, *join);
      } else {
        EndLocked(session, &peer, absl::InvalidArgumentError("the first message of a stream must be a Join"));
      }
    } else if (join != nullptr) {
      ForgetKeyLocked(&peer);
      EndLocked(session, &peer, absl::InvalidArgumentError("only the first message of a stream may be a Join"));
    } else {
      const auto& [job, node, incarnation] = peer.key;
      Effects effects;
      registry_.OnMessage(job, node, incarnation, message, NowLocked(), &effects);
      if (const auto* inspection = std::get_if<Inspection>(&message)) {
        AnswerLocked(inspections_.OnInspection(peer.key, *inspection));
      }
      const Leave* leave = std::get_if<Leave>(&message);
      if (leave != nullptr) LogLocked(absl::StrCat("job ", job, ": ", peer.name, " is leaving: ", leave->reason()));
      QueueEffectsLocked(std::move(effects));
      if (leave != nullptr && !std::exchange(peer.left, true) && !peer.in_process) ++leavers_;
      // A launcher with workers left stays until they are gone; it then ends its stream.
      if (leave != nullptr && !leave->has_workers() && peer.state == Peer::State::kJoined) {
        RemoveKeyLocked(peer.key);
        EndLocked(session, &peer, absl::OkStatus());
      }
    }
    WakeTimerIfEarlierLocked();
  }
  Drain();
}

SteadyTime Driver::NowLocked() {
  registry_.SetWallTimeAtStart(WallTimeAtStart());
  return SteadyNow();
}

void Driver::JoinLocked(const std::shared_ptr<Session>& session, Peer* peer, const Join& join) {
  NodeKey key(join.job_id(), join.node_id(), join.incarnation());
  if (!joined_.emplace(key, session).second) {
    EndLocked(session, peer,
              absl::AbortedError(
                  absl::StrCat("node ", join.node_id(), " has already joined with incarnation ", join.incarnation())));
    return;
  }
  peer->state = Peer::State::kJoined;
  peer->key = std::move(key);
  peer->name = absl::StrCat(join.host(), " (", join.address(), ", ", Counted(join.slots(), "worker"), ")");
  peer->in_process = join.origin().in_process();
  peer->fence_time = FenceTime(LongestTimeout(join.settings()));
  if (!join.origin().in_process()) ++remote_launchers_;
  Effects effects;
  registry_.OnMessage(join.job_id(), join.node_id(), join.incarnation(), join, NowLocked(), &effects);
  QueueEffectsLocked(std::move(effects));
}

void Driver::EndLocked(const std::shared_ptr<Session>& session, Peer* peer, absl::Status status) {
  peer->state = Peer::State::kEnded;
  peer->cut = true;
  actions_.push_back(Action{.session = session, .end = std::move(status)});
}

void Driver::ForgetKeyLocked(Peer* peer) {
  const auto& [job, node, incarnation] = peer->key;
  RemoveKeyLocked(peer->key);
  Effects effects;
  registry_.OnStreamClosed(job, node, incarnation, NowLocked(), &effects);
  if (!peer->finished && !peer->left) LogLocked(absl::StrCat("job ", job, ": lost connection to ", peer->name));
  QueueEffectsLocked(std::move(effects));
}

void Driver::OnClosed(const std::shared_ptr<Session>& session) {
  {
    MutexLock lock(&mutex_);
    const auto it = peers_.find(session.get());
    if (it == peers_.end()) return;
    Peer& peer = it->second;
    if (peer.state == Peer::State::kJoined) {
      ForgetKeyLocked(&peer);
      EndLocked(session, &peer,
                peer.finished || peer.left
                    ? absl::OkStatus()
                    : absl::InvalidArgumentError("the launcher ended its stream without a Leave"));
    }
    PeerGoneLocked(peer);
    peers_.erase(it);
    WakeTimerIfEarlierLocked();
  }
  Drain();
}

void Driver::PeerGoneLocked(const Peer& peer) {
  const bool ever_joined = !std::get<1>(peer.key).empty();
  if (!ever_joined || peer.in_process) return;
  if (peer.left) --leavers_;
  --remote_launchers_;
  everyone_left_.NotifyAll();
}

bool Driver::WaitUntilLaunchersLeft(SteadyTime deadline) {
  MutexLock lock(&mutex_);
  while (true) {
    const SteadyTime now = SteadyNow();
    const SteadyTime unheard_until = registry_.UnheardUntil();
    if (remote_launchers_ == 0 && unheard_until <= now) return true;
    if (now >= deadline || stop_waiting_) return false;
    everyone_left_.WaitUntil(&mutex_, remote_launchers_ > 0 ? deadline : std::min(deadline, unheard_until));
  }
}

void Driver::QueueEffectsLocked(Effects effects) {
  AppendLocalCause(&effects);
  // Log first the nodes that joined, then what followed from it.
  for (const Effect& effect : effects) {
    const auto* tell = std::get_if<Tell>(&effect);
    if (tell == nullptr || !std::holds_alternative<Welcome>(tell->message)) continue;
    const auto it = joined_.find(NodeKey(tell->job_id, tell->node_id, tell->incarnation));
    if (it != joined_.end())
      LogLocked(absl::StrCat("job ", tell->job_id, ": ", peers_[it->second.get()].name, " joined"));
  }
  for (std::string& line : DescribeEffects(effects)) LogLocked(std::move(line));
  for (Effect& effect : effects) {
    std::visit([this](auto& e) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { QueueLocked(std::move(e)); }, effect);
  }
}

void Driver::QueueLocked(Tell tell) {
  const auto it = joined_.find(NodeKey(tell.job_id, tell.node_id, tell.incarnation));
  if (it == joined_.end()) return;  // its stream is gone; the node gets the state when it joins again
  const std::shared_ptr<Session> session = it->second;
  Peer& peer = peers_[session.get()];
  if (std::holds_alternative<Finish>(tell.message)) peer.finished = true;
  auto* const welcome = std::get_if<Welcome>(&tell.message);
  if (std::holds_alternative<HeartbeatAck>(tell.message)) {  // depends on no record
    actions_.push_back(Action{.session = session, .message = std::move(tell.message)});
    return;
  }
  if (welcome == nullptr) {
    return QueueAfterRecordsLocked(tell.job_id, Action{.session = session, .message = std::move(tell.message)});
  }
  welcome->set_by_launcher(host_ == Host::kLauncher);
  welcome->set_server_process(process_name_);
  // The first message of a stream, which does not depend on a record either.
  actions_.push_back(Action{.session = session, .message = std::move(tell.message)});
  if (held_.contains(tell.job_id) && !StoreErrorLocked(tell.job_id).empty()) {
    actions_.push_back(Action{.session = session, .message = DescribeStoreErrorLocked(tell.job_id)});
  }
}

void Driver::QueueLocked(Close close) {
  const NodeKey key(close.job_id, close.node_id, close.incarnation);
  const auto it = joined_.find(key);
  if (it == joined_.end()) return;
  const std::shared_ptr<Session> session = it->second;
  RemoveKeyLocked(key);
  peers_[session.get()].state = Peer::State::kEnded;
  QueueAfterRecordsLocked(close.job_id, Action{.session = session, .end = StatusOf(close)});
}

void Driver::QueueLocked(Report report) {
  if (events_ == nullptr) return;
  const std::string job_id = report.event.job_id();
  QueueAfterRecordsLocked(job_id, Action{.event = std::make_unique<Event>(std::move(report.event))});
}

void Driver::QueueLocked(Persist persist) {
  const std::string job_id = persist.record->job_id();
  held_[job_id].push_back(Action{.wait = true});
  store_->SaveRecord(std::move(persist.record), std::move(persist.event),
                     [this, job_id] { OnRecordPersisted(job_id); });
  if (!StoreErrorLocked(job_id).empty()) NotifyStoreErrorLocked(job_id);
}

void Driver::QueueAfterRecordsLocked(const std::string& job_id, Action action) {
  const auto held = held_.find(job_id);
  (held == held_.end() ? actions_ : held->second).push_back(std::move(action));
}

void Driver::OnRecordPersisted(const std::string& job_id) {
  {
    MutexLock lock(&mutex_);
    const auto it = held_.find(job_id);
    std::deque<Action>& held = it->second;
    held.pop_front();
    while (!held.empty() && !held.front().wait) {
      const auto peer = peers_.find(held.front().session.get());
      const bool of_no_session = held.front().event != nullptr || held.front().answer != nullptr;
      if (of_no_session || (peer != peers_.end() && !peer->second.cut)) actions_.push_back(std::move(held.front()));
      held.pop_front();
    }
    if (held.empty()) held_.erase(it);
  }
  Drain();
}

void Driver::OnStoreError(const std::string& trouble) {
  {
    MutexLock lock(&mutex_);
    store_trouble_ = trouble;
    for (const auto& [job_id, actions] : held_) {
      NotifyStoreErrorLocked(job_id);
      if (!trouble.empty()) AnswerOutcomeUnknownLocked(job_id, trouble);
    }
  }
  Drain();
}

void Driver::OnJobStoreError(const std::string& job_id, const std::string& trouble) {
  {
    MutexLock lock(&mutex_);
    if (trouble.empty()) {
      job_troubles_.erase(job_id);
    } else {
      job_troubles_[job_id] = trouble;
      AnswerOutcomeUnknownLocked(job_id, trouble);
    }
    NotifyStoreErrorLocked(job_id);
  }
  Drain();
}

std::string Driver::StoreErrorLocked(const std::string& job_id) const {
  const auto found = job_troubles_.find(job_id);
  return found == job_troubles_.end() ? store_trouble_ : found->second;
}

void Driver::NotifyStoreErrorLocked(const std::string& job_id) {
  const Waiting waiting = DescribeStoreErrorLocked(job_id);
  for (auto it = joined_.lower_bound(NodeKey(job_id, "", 0)); it != joined_.end() && std::get<0>(it->first) == job_id;
       ++it) {
    actions_.push_back(Action{.session = it->second, .message = waiting});
  }
}

void Driver::AnswerOutcomeUnknownLocked(const std::string& job_id, absl::string_view why) {
  const auto held = held_.find(job_id);
  if (held == held_.end()) return;
  for (Action& action : held->second) {
    if (action.answer == nullptr) continue;
    actions_.push_back(Action{.answer = std::exchange(action.answer, nullptr),
                              .answered = absl::DeadlineExceededError(absl::StrCat(
                                  "it is not known whether the command takes effect: the rendezvous server ", why))});
  }
}

void Driver::ShowStoreErrorLocked(v1::Job* job) const {
  const std::string trouble = held_.contains(job->job_id()) ? StoreErrorLocked(job->job_id()) : "";
  if (trouble.empty()) return;
  job->set_reason(absl::StrCat("waiting for the job's record to be written: the rendezvous server ", trouble));
}

Waiting Driver::DescribeStoreErrorLocked(const std::string& job_id) const {
  Waiting waiting;
  if (const std::optional<v1::Job> job = registry_.GetJob(job_id, SteadyNow())) {
    waiting.set_nodes_joined(job->node_count());
    waiting.set_min_nodes(job->settings().min_nodes());
    waiting.set_max_nodes(job->settings().max_nodes());
    waiting.set_reason(job->reason());
  }
  *waiting.mutable_remaining() = FromDuration(absl::InfiniteDuration());
  const std::string trouble = StoreErrorLocked(job_id);
  if (!trouble.empty()) waiting.set_reason(absl::StrCat("the rendezvous server ", trouble));
  return waiting;
}

void Driver::RemoveKeyLocked(const NodeKey& key) {
  joined_.erase(key);
  AnswerLocked(inspections_.OnGone(key));
}

void Driver::AnswerLocked(Inspections::Answers answers, const absl::Status& status) {
  for (Inspections::Answer& answer : answers) {
    actions_.push_back(Action{.answer = std::move(answer), .answered = status});
  }
}

void Driver::LogLocked(std::string line) { actions_.push_back(Action{.log = std::move(line)}); }

void Driver::Drain() {
  {
    MutexLock lock(&mutex_);
    if (draining_) return;
    draining_ = true;
  }
  while (true) {
    std::deque<Action> batch;
    {
      MutexLock lock(&mutex_);
      batch.swap(actions_);
      if (batch.empty()) {
        draining_ = false;
        return;
      }
    }
    for (Action& action : batch) {
      if (action.message.has_value()) action.session->Send(*action.message);
      if (action.end.has_value()) action.session->End(*action.end);
      if (!action.log.empty()) Log(LogLevel::kInfo, action.log);
      if (action.event != nullptr) events_->Append(std::move(*action.event));
      if (action.answer != nullptr) action.answer(std::move(action.answered));
    }
  }
}

bool Driver::WaitUntilLeaversLeft(SteadyTime deadline) {
  MutexLock lock(&mutex_);
  while (leavers_ > 0) {
    const SteadyTime until = std::min(deadline, LeaversGoneLocked());
    if (SteadyNow() >= until || stop_waiting_) return false;
    everyone_left_.WaitUntil(&mutex_, until);
  }
  return true;
}

SteadyTime Driver::LeaversGoneLocked() const {
  SteadyTime gone = SteadyTime::InfinitePast();
  for (const auto& [unused, peer] : peers_) {
    if (peer.left && !peer.in_process) gone = std::max(gone, peer.heard + peer.fence_time);
  }
  return gone;
}

void Driver::StopWaiting() {
  {
    MutexLock lock(&mutex_);
    stop_waiting_ = true;
  }
  everyone_left_.NotifyAll();
}

void Driver::OnCommand(const Command& command, const Caller& caller, std::function<void(absl::Status)> answer) {
  // The job whose record the command changes.
  const std::string job_id = std::visit(
      [](const auto& c) -> std::string {
        if constexpr (requires { c.job_id; }) {
          return c.job_id;
        } else {
          return kServerRecordId;
        }
      },
      command);
  {
    MutexLock lock(&mutex_);
    Action action{.answer = std::move(answer)};
    if (!OwnedLocked() || !takes_commands_) {
      action.answered = absl::UnavailableError(takes_commands_ ? kNotLeader : kShuttingDown);
      actions_.push_back(std::move(action));
    } else if (!store_trouble_.empty()) {  // not for the trouble of one job, whose next record may be smaller
      action.answered = absl::UnavailableError(
          absl::StrCat("nothing was done: the rendezvous server ", store_trouble_, "; try again"));
      actions_.push_back(std::move(action));
    } else {
      Effects effects;
      action.answered = registry_.OnCommand(command, caller, NowLocked(), &effects);
      QueueEffectsLocked(std::move(effects));
      // Refusals wait as well: the end of a job may be in a record that is not persisted yet.
      QueueAfterRecordsLocked(job_id, std::move(action));
      WakeTimerIfEarlierLocked();
    }
  }
  Drain();
}

void Driver::Inspect(v1::InspectRequest question, const Caller& caller, v1::InspectResponse* response,
                     std::function<void(absl::Status)> answer) {
  {
    MutexLock lock(&mutex_);
    const auto begin = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) -> absl::Status {
      if (!OwnedLocked()) return absl::UnavailableError(kNotLeader);
      if (!takes_commands_) return absl::UnavailableError(kShuttingDown);
      const absl::StatusOr<uint64_t> id = inspections_.NewId(question.job_id());
      if (!id.ok()) return id.status();
      question.mutable_inspect()->set_id(*id);
      Effects effects;
      const SteadyTime now = NowLocked();
      const absl::StatusOr<InspectedNodes> nodes = registry_.Inspect(question, caller, now, &effects);
      if (!nodes.ok()) return nodes.status();
      QueueEffectsLocked(std::move(effects));
      AnswerLocked(inspections_.Begin(question.inspect(), question.job_id(), *nodes, now, response, answer));
      WakeTimerIfEarlierLocked();
      return absl::OkStatus();
    };
    if (absl::Status refused = begin(); !refused.ok()) AnswerLocked({std::move(answer)}, refused);
  }
  Drain();
}

void Driver::StopCommands() {
  {
    MutexLock lock(&mutex_);
    takes_commands_ = false;
    AnswerLocked(inspections_.TakeAll(), absl::UnavailableError(kShuttingDown));
    for (const auto& [job_id, actions] : held_) AnswerOutcomeUnknownLocked(job_id, "is shutting down");
  }
  Drain();
}

std::vector<std::string> Driver::DrainedHosts() const {
  MutexLock lock(&mutex_);
  return {registry_.drained_hosts().begin(), registry_.drained_hosts().end()};
}

std::vector<v1::Job> Driver::ListJobs(absl::string_view after, size_t limit) const {
  MutexLock lock(&mutex_);
  std::vector<v1::Job> jobs = registry_.ListJobs(SteadyNow(), after, limit);
  for (v1::Job& job : jobs) ShowStoreErrorLocked(&job);
  return jobs;
}

std::optional<v1::Job> Driver::GetJob(absl::string_view job_id) const {
  MutexLock lock(&mutex_);
  std::optional<v1::Job> job = registry_.GetJob(job_id, SteadyNow());
  if (job.has_value()) ShowStoreErrorLocked(&*job);
  return job;
}

int Driver::Launchers() const {
  MutexLock lock(&mutex_);
  return remote_launchers_;
}

std::string Driver::StoreTrouble() const {
  MutexLock lock(&mutex_);
  return store_trouble_;
}

SteadyTime Driver::NextDeadlineLocked() const {
  return std::min(registry_.NextDeadline(), inspections_.NextDeadline());
}

void Driver::WakeTimerIfEarlierLocked() {
  if (NextDeadlineLocked() < armed_) timer_.NotifyAll();
}

void Driver::RunTimer() {
  for (bool owned = true; owned;) {
    {
      MutexLock lock(&mutex_);
      while (!stopping_ && SteadyNow() < NextDeadlineLocked()) {
        armed_ = NextDeadlineLocked();
        timer_.WaitUntil(&mutex_, armed_);
      }
      if (stopping_) return;
      owned = OwnedLocked();
      const SteadyTime now = NowLocked();
      if (!owned) {
        AnswerLocked(inspections_.TakeAll(), absl::UnavailableError(kNotLeader));
      } else {
        AnswerLocked(inspections_.OnDeadline(now));
      }
      if (owned && registry_.NextDeadline() <= now) {
        Effects effects;
        registry_.OnDeadline(now, &effects);
        QueueEffectsLocked(std::move(effects));
      }
    }
    Drain();
  }
}

}  // namespace ddprun::rendezvous
