#include "rendezvous/core/job.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/secret.h"
#include "base/text.h"
#include "rendezvous/core/heartbeats.h"
#include "rendezvous/core/join_check.h"
#include "rendezvous/core/limits.h"
#include "rendezvous/core/phrases.h"
#include "rendezvous/core/validate.h"
#include "rendezvous/core/verdicts.h"

namespace ddprun::rendezvous {
namespace {

absl::Duration BeatInterval(const Node& node) {
  return node.join.origin().in_process() ? absl::InfiniteDuration() : node.heartbeat_timeout / kBeatsPerTimeout;
}

v1::Node::State ShownState(const Node& node, JobState job) {
  switch (node.state) {
    case NodeState::kIdle: return job == JobState::kRunning ? v1::Node::STATE_SPARE : v1::Node::STATE_IDLE;
    case NodeState::kRunning: return v1::Node::STATE_RUNNING;
    case NodeState::kSucceeded: return v1::Node::STATE_SUCCEEDED;
    case NodeState::kStopping: return v1::Node::STATE_STOPPING;
  }
  return v1::Node::STATE_UNSPECIFIED;
}

v1::Node ViewOf(const Node& node, JobState job, const DrainedHosts& drained, SteadyTime now) {
  v1::Node view;
  view.set_node_id(ShownId(node.join.node_id()));
  view.set_host(node.join.host());
  view.set_address(node.join.address());
  view.set_slots(node.join.slots());
  view.set_role(node.join.role());
  view.set_state(ShownState(node, job));
  view.set_group_rank(node.group_rank);
  view.set_connected(node.connected);
  *view.mutable_last_heard() = FromDuration(now - node.last_heard);
  if (node.in_round()) view.set_base_rank(node.base_rank);
  view.set_drained(drained.contains(node.join.host()));
  return view;
}

JobRecord RecordOf(const Join& first) {
  JobRecord record = NewRecord(first.job_id(), first.settings());
  record.set_settings_host(first.host());
  record.set_owner(first.origin().user());
  return record;
}

}  // namespace

Job::Job(const Join& first, JobOrigin origin, const JobServer& server, SteadyTime now)
    : Job(RecordOf(first), std::move(origin), server, now) {}

Job::Job(const JobRecord& record, const JobServer& server)
    : Job(record, JobOrigin::Of(record, server.began), server, server.began) {
  state_ = JobState::kRecovering;
  state_reason_ = std::string(kRecoveringReason);
  fence_.OnRestored();
  budget_.LearnUsed(record.restarts_charged());
  if (record.has_restarts()) budget_.Restore(record.restarts(), server.began);
  const absl::Duration wait = ToDuration(record.restarts().wait());
  if (wait > absl::ZeroDuration()) restart_at_ = server.began + wait;
  recovery_.Begin(settings_, server.began);
  if (!round_.leave_reason().empty()) {
    recovery_.BeginLeft();
    reported_stopped_ = round_.number();
  }
  for (int i = 0; i < round_.record().nodes_size(); ++i) {
    const RoundNodeRecord& node = round_.record().nodes(i);
    if (!node.gone()) continue;
    recovery_.Gone(i);
    if (departed_.KickedBy(node.node_id()) != nullptr) departures_.AddCommand();
  }
}

Job::Job(const JobRecord& record, JobOrigin origin, const JobServer& server, SteadyTime now)
    : job_id_(record.job_id()),
      settings_(record.settings()),
      settings_host_(record.settings_host()),
      owner_(record.owner()),
      created_(now - ToDuration(record.age())),
      previous_(std::move(origin.previous)),
      server_(server),
      size_{settings_.min_nodes(), settings_.max_nodes()},
      resized_(record.resized_max_nodes() > 0),
      members_(ToDuration(settings_.heartbeat_timeout()), ToDuration(settings_.reconnect_grace()), server.lateness),
      fence_(settings_, server.began, std::move(origin.gone), origin.gone_are_all),
      budget_(settings_),
      round_(record.round().number() > 0 ? Round(record.round(), record.highest_round())
                                         : Round(origin.round_floor, origin.max_reported)),
      cooldowns_(ToDuration(settings_.node_cooldown()), record, now),
      goodput_(record.has_goodput() ? Goodput(record.goodput(), now) : Goodput(now)),
      history_({record.events().begin(), record.events().end()}),
      departed_(record, origin.unreported),
      waiting_since_(now) {
  if (resized_) size_ = JobSize{record.resized_min_nodes(), record.resized_max_nodes()};
  if (origin.unreported) fence_.OnRestored();
}

void Job::SendWelcome(Node* node, const Join& join, const Turn& turn) {
  members_.SetInTouch(node, join.in_touch() && join.has_current());
  node->may_claim_touch = node->in_touch;
  node->told_left_out = false;
  if (!node->join.origin().in_process()) {
    const int64_t nodes = std::max<int64_t>(settings_.min_nodes(), static_cast<int64_t>(members_.size()));
    const absl::Duration planned = StretchedTimeout(ToDuration(settings_.heartbeat_timeout()), nodes);
    // If this Welcome is lost, the launcher keeps its current timeout, so the timeout must not become shorter. No
    // server assigns a timeout longer than LongestTimeout.
    const absl::Duration present = std::max(node->heartbeat_timeout, ToDuration(join.heartbeat_timeout()));
    members_.SetHeartbeatTimeout(node, std::min(std::max(planned, present), LongestTimeout(settings_)));
  }
  Welcome welcome = NewWelcome(BeatInterval(*node), node->heartbeat_timeout);
  welcome.set_missed_round(node->in_round() ? 0 : round_.last_assigned());
  Send(*node, std::move(welcome), turn);
}

void Job::OnMessage(absl::string_view node_id, uint64_t incarnation, const LauncherMessage& message, const Turn& turn) {
  Node* node = members_.Find(node_id);
  const bool is_beat = std::holds_alternative<Heartbeat>(message);
  if (node == nullptr) {
    const std::string id(node_id);
    if (!is_beat || !fence_.OnHeartbeat(id, incarnation, turn.now)) return;
    turn.effects->emplace_back(rendezvous::Tell{job_id_, id, incarnation, HeartbeatAck{}});
    return;
  }
  if (node->join.incarnation() != incarnation || !node->connected) return;
  if (is_beat && server_.lateness != nullptr)
    server_.lateness->OnBeat(turn.now - node->last_heard, BeatInterval(*node));
  members_.Heard(node, turn.now);
  if (is_beat) return Send(*node, HeartbeatAck{}, turn);
  if (const auto* m = std::get_if<WorkerFailed>(&message)) return OnWorkerFailed(node, *m, turn);
  if (const auto* m = std::get_if<GroupSucceeded>(&message)) return OnSucceeded(node, *m, turn);
  if (const auto* m = std::get_if<Ready>(&message)) return OnReady(node, *m, turn);
  if (const auto* m = std::get_if<Leave>(&message)) return OnLeave(node, *m, turn);
  if (const auto* m = std::get_if<Hang>(&message)) return OnHang(*node, *m, turn);
  const auto* progress = std::get_if<Progress>(&message);
  if (progress != nullptr && node->in_round() && progress->round() == round_.number()) {
    progress_.Add(*node, *progress, turn.now);
    const auto furthest = std::max_element(progress->ranks().begin(), progress->ranks().end(),
                                           [](const auto& a, const auto& b) { return a.step() < b.step(); });
    if (state_ == JobState::kRunning && furthest != progress->ranks().end())
      goodput_.OnStep(furthest->step(), turn.now);
  }
}

void Job::OnLeave(Node* node, const Leave& leave, const Turn& turn) {
  if (leave.has_workers() && node->may_have_workers()) fence_.OnLeft(*node, turn.now);
  const std::string& reason = leave.reason();
  const std::string node_id = node->join.node_id();
  const uint64_t incarnation = node->join.incarnation();
  OnGone(node,
         {absl::StrCat("node ", node->join.host(), " left", reason.empty() ? "" : ": ", reason), false, leave.signal(),
          leave.has_workers(), Going::How::kLeft},
         turn);
  // The last node to leave is the only one that can still run the command for the job's end (protocol 5).
  if (ended() && members_.size() == 0) {
    Finish finish = NewFinish(*verdict_);
    finish.set_runs_end_command(true);
    turn.effects->emplace_back(rendezvous::Tell{job_id_, node_id, incarnation, std::move(finish)});
  }
}

void Job::OnStreamClosed(absl::string_view node_id, uint64_t incarnation, const Turn& turn) {
  if (fence_.OnStreamClosed(node_id, incarnation) && state_ == JobState::kStopping) return TryAssign(turn);
  Node* node = members_.Find(node_id);
  if (node == nullptr || node->join.incarnation() != incarnation) return;
  members_.Disconnected(node, turn.now);
  if (members_.ready() == 0) notices_.Clear();
}

void Job::NoteChange(SteadyTime now) {
  if (members_.ready() > 0) {
    notices_.Changed(now);
  } else {
    notices_.Clear();
  }
}

void Job::OnReady(Node* node, const Ready& ready, const Turn& turn) {
  if (ready.left_round() != node->round) return;
  if (auto problem = CheckSurvivors(ready.survivors(), node->join.slots())) {
    Refuse(node->join.node_id(), node->join.incarnation(), absl::StrCat("Ready.survivors ", *problem), turn);
    return OnGone(node, {absl::StrCat("node ", node->join.host(), " sent invalid survivors")}, turn);
  }
  node->join.set_store_port(ready.store_port());
  node->join.set_store_secret(ready.store_secret());
  if (ready.left_out()) {
    node->may_claim_touch = false;
    members_.SetInTouch(node, false);
  }
  if (node->state == NodeState::kIdle) {  // a repeated Ready, with the latest survivors
    members_.SetSurvivors(node, ready.survivors(), ready.can_reform());
    if (ready.left_out() && state_ == JobState::kStopping) TryAssign(turn);
    return;
  }
  if (state_ == JobState::kRecovering && node->state == NodeState::kSucceeded && node->in_round()) {
    round_.TakeBackSuccess();
  }
  members_.SetState(node, NodeState::kIdle);
  members_.SetSurvivors(node, ready.survivors(), ready.can_reform());
  const std::string stopped = absl::StrCat("node ", node->join.host(), " stopped its workers");
  switch (state_) {
    case JobState::kWaiting:
    case JobState::kLastCall: return NoteChange(turn.now);
    case JobState::kStopping: NoteChange(turn.now); return TryAssign(turn);
    case JobState::kRunning:
      if (!node->in_round()) return ConsiderLate(*node, turn);
      return LeaveRound(stopped, std::nullopt, turn);
    case JobState::kRecovering:
      if (!node->in_round()) return;
      recovery_.CauseReceived(node->group_rank);
      LeaveInRecovery(stopped, std::nullopt, turn);
      return CompleteRecoveryIfAllReported(turn);
    case JobState::kFinished:
    case JobState::kFailed: return;
  }
}

void Job::OnSucceeded(Node* node, const GroupSucceeded& message, const Turn& turn) {
  if (!node->in_round() || node->state != NodeState::kRunning || message.round() != round_.number()) return;
  // In the other states no node is in NodeState::kRunning.
  if (state_ != JobState::kRunning && state_ != JobState::kRecovering) return;
  members_.SetState(node, NodeState::kSucceeded);
  round_.AddSuccess();
  if (state_ == JobState::kRunning && round_.all_succeeded()) End(Succeeded(round_.world_size()), turn);
}

void Job::OnHang(const Node& node, Hang hang, const Turn& turn) {
  if (state_ != JobState::kRunning || node.group_rank != 0 || hang.round() != round_.number()) return;
  const bool continues = hang.kind() == Hang::KIND_CONTINUED && hang_;
  const bool replaces = hang.kind() == Hang::KIND_REPLACE;
  // Replacing is once for each report, so that it needs no other limit.
  if (replaces ? !hang_ || hang_->kind() == Hang::KIND_REPLACE : !continues && turn.now < next_hang_) return;
  if (!replaces) next_hang_ = turn.now + kHangInterval;
  *hang.mutable_at() = FromTime(turn.wall_time);
  const bool known = hang_ && std::ranges::equal(hang_->ranks(), hang.ranks());
  if (continues) {
    Report(NewEvent(event_kind::kRoundContinued, FirstLine(hang)), turn);
  } else if (hang.kind() == Hang::KIND_MISMATCH) {
    Report(HangEvent(event_kind::kRoundMismatch, hang), turn);
  } else if (hang.kind() == Hang::KIND_STRAGGLER) {
    Report(HangEvent(event_kind::kRoundStraggler, hang), turn);
  } else if (hang.kind() == Hang::KIND_HUNG && !known) {
    Report(HangEvent(event_kind::kRoundHung, hang), turn);
  }
  for (const auto& other : members_.nodes()) {
    if (other->in_round() && other.get() != &node) Send(*other, hang, turn);
  }
  switch (hang.kind()) {
    case Hang::KIND_HUNG: hang_ = std::move(hang); return;
    case Hang::KIND_CONTINUED: return hang_.reset();
    case Hang::KIND_REPLACE: return hang_->set_kind(hang.kind());
    case Hang::KIND_STRAGGLER: straggler_ = std::move(hang); return;
    default: return;
  }
}

Event Job::HangEvent(const char* kind, const Hang& hang) const {
  if (hang.ranks().empty()) return NewEvent(kind, FirstLine(hang));
  const int32_t rank = hang.ranks(0);
  const auto has_rank = [rank](const auto& node) {
    return node->in_round() && rank >= node->base_rank && rank - node->base_rank < node->join.slots();
  };
  const auto& nodes = members_.nodes();
  const auto found = std::find_if(nodes.begin(), nodes.end(), has_rank);
  Event event = found == nodes.end() ? NewEvent(kind, FirstLine(hang)) : EventOf(kind, **found, FirstLine(hang));
  event.set_rank(rank);
  return event;
}

SteadyTime Job::NextDeadline() const {
  SteadyTime next = std::min(members_.NextExpiry(), StateDeadline());
  return std::min({next, notices_.Due(), cooldowns_.NextEnd()});
}

SteadyTime Job::StateDeadline() const {
  switch (state_) {
    case JobState::kWaiting: return *waiting_since_ + WaitLimit();
    case JobState::kLastCall: return last_call_end_;
    // If only nodes that are gone, or the backoff, delay the round, it starts when the fence opens and the backoff
    // ends.
    case JobState::kStopping:
      return WaitsForGoneOnly() ? std::min(stop_deadline_, std::max(fence_.OpensAt(), restart_at_)) : stop_deadline_;
    case JobState::kRecovering: return recovery_.until();
    case JobState::kRunning:
    case JobState::kFinished:
    case JobState::kFailed: break;
  }
  return SteadyTime::InfiniteFuture();
}

void Job::OnDeadline(const Turn& turn) {
  const bool cooldown_over = cooldowns_.Expire(turn.now);
  RemoveExpired(turn);
  if (cooldown_over && state_ == JobState::kRunning) ConsiderAllLate(turn);
  if (state_ == JobState::kStopping) TryAssign(turn);
  if (!ended() && StateDeadline() <= turn.now) OnStateDeadline(turn);
  if (!ended() && notices_.Due() <= turn.now) SendNotices(turn);
}

void Job::RemoveExpired(const Turn& turn) {
  Departure departure;
  while (Node* node = members_.Expired(turn.now)) {
    if (node->connected) {
      RemoveSilent(node, &departure, turn);
    } else {
      if (node->in_round() && node->state == NodeState::kSucceeded) departed_.ExpectForVerdict(*node, settings_);
      Remove(node,
             {absl::StrCat("node ", node->join.host(), " lost: disconnected and did not reconnect within ",
                           absl::FormatDuration(ToDuration(settings_.reconnect_grace())))},
             &departure, turn);
    }
  }
  if (!departure.empty()) OnDeparture(departure, turn);
}

void Job::RemoveSilent(Node* node, Departure* departure, const Turn& turn) {
  if (node->may_have_workers()) fence_.OnSilent(*node);
  Close(node->join.node_id(), node->join.incarnation(), rendezvous::Close::Why::kLost, turn);
  if (node->in_round() && node->state == NodeState::kSucceeded) departed_.ExpectForVerdict(*node, settings_);
  const absl::Duration silence = absl::Trunc(turn.now - node->last_heard, absl::Milliseconds(100));
  Remove(node,
         {absl::StrCat("node ", node->join.host(), " lost: no heartbeat for ", absl::FormatDuration(silence)), true},
         departure, turn);
}

void Job::OnStateDeadline(const Turn& turn) {
  switch (state_) {
    case JobState::kWaiting: {
      Verdict verdict =
          Failed(DescribeJoinTimeout(SettingsNow(), WaitLimit(), static_cast<size_t>(usable_nodes()),
                                     members_.FirstHosts(kMaxHostsNamed), round_.number() > 0 ? state_reason_ : ""),
                 departures_.loss());
      verdict.set_exit_code(1);  // missing nodes are the reason, not the exit code of a lost node
      return End(std::move(verdict), turn);
    }
    case JobState::kLastCall:
      return StartRound(absl::StrCat("last call ended with ", Counted(members_.size() - LeftOutNow().size(), "node")),
                        turn);
    case JobState::kStopping: {
      if (turn.now < stop_deadline_) return;
      std::vector<std::string> hosts;
      size_t all = 0;
      for (const auto& node : members_.nodes()) {
        if (node->ready()) continue;
        if (++all <= kMaxHostsNamed) hosts.push_back(node->join.host());
      }
      return End(Failed(absl::StrCat("workers did not stop within ",
                                     absl::FormatDuration(ToDuration(settings_.join_timeout()) + kStopTimeout), " on ",
                                     all > 0 ? HostList(hosts, all) : "nodes that have left"),
                        std::nullopt),
                 turn);
    }
    case JobState::kRecovering: return GiveUpRecovery(turn);
    case JobState::kRunning:
    case JobState::kFinished:
    case JobState::kFailed: return;
  }
}

void Job::SendNotices(const Turn& turn) {
  notices_.Sent(turn.now);
  const Waiting waiting = DescribeWaiting(turn.now);
  const LeftOutNodes left_out = LeftOutNow();
  for (const auto& node : members_.nodes()) {
    if (!node->ready()) continue;
    Waiting told = waiting;
    if (left_out.contains(node.get())) told.set_reason(DescribeLeftOut(*node));
    Send(*node, std::move(told), turn);
  }
}

Waiting Job::DescribeWaiting(SteadyTime now) const {
  Waiting waiting;
  waiting.set_spare(state_ == JobState::kRunning);
  waiting.set_nodes_joined(usable_nodes());
  waiting.set_min_nodes(size_.min_nodes);
  waiting.set_max_nodes(size_.max_nodes);
  // The size of Waiting messages to all nodes is quadratic in the number of nodes, so only small jobs get all hosts.
  const size_t named = members_.size() <= kMaxHostsTold ? kMaxHostsTold : kMaxHostsNamed;
  for (std::string& host : members_.FirstHosts(named)) waiting.add_hosts(std::move(host));
  const bool endless = state_ == JobState::kStopping && !WaitsForGoneOnly();  // workers have to stop first
  absl::Duration remaining = std::max(absl::ZeroDuration(), StateDeadline() - now);
  if (endless) remaining = absl::InfiniteDuration();
  *waiting.mutable_remaining() = FromDuration(waiting.spare() ? absl::ZeroDuration() : remaining);
  waiting.set_last_call(state_ == JobState::kLastCall);
  waiting.set_reason(ReasonAt(now));
  if (state_ == JobState::kWaiting && !hint_.empty()) {
    waiting.set_reason(absl::StrCat(waiting.reason(), waiting.reason().empty() ? "" : "; ", hint_));
  }
  return waiting;
}

void Job::Send(const Node& node, ServerMessage message, const Turn& turn) const {
  if (!node.connected) return;  // its next Join is answered with what it missed (protocol 4.3)
  turn.effects->emplace_back(
      rendezvous::Tell{job_id_, node.join.node_id(), node.join.incarnation(), std::move(message)});
}

void Job::Close(const std::string& node_id, uint64_t incarnation, rendezvous::Close::Why why, const Turn& turn) const {
  const bool lost = why == rendezvous::Close::Why::kLost;
  turn.effects->emplace_back(rendezvous::Close{
      job_id_, node_id, incarnation, why,
      lost ? "node lost: heartbeat timeout exceeded; rejoin the job" : "replaced by a newer incarnation of this node"});
}

void Job::Refuse(const std::string& node_id, uint64_t incarnation, std::string reason, const Turn& turn) const {
  turn.effects->emplace_back(rendezvous::Tell{job_id_, node_id, incarnation, NewRejected(reason)});
  turn.effects->emplace_back(
      rendezvous::Close{job_id_, node_id, incarnation, rendezvous::Close::Why::kRefused, std::move(reason)});
}

void Job::Persist(std::string event, const Turn& turn) {
  if (!server_.keeps_records) return;
  kept_ = std::make_shared<JobRecord>(Record(turn.now));
  turn.effects->emplace_back(rendezvous::Persist{kept_, std::move(event)});
}

void Job::CompleteRecord(SteadyTime now) {
  const std::shared_ptr<JobRecord> record = std::exchange(kept_, nullptr);
  if (record == nullptr) return;
  *record->mutable_goodput() = goodput_.Record(now);
  record->mutable_events()->Assign(history_.events().begin(), history_.events().end());
}

void Job::Report(Event event, const Turn& turn) {
  goodput_.OnEvent(event.kind(), turn.now);
  event.set_job_id(job_id_);
  event.set_round(round_.number());
  event.set_restart_count(budget_.used());
  if (event.failure().traceback().size() > kMaxEventTraceback) {
    event.mutable_failure()->set_traceback(CutMiddle(event.failure().traceback(), kMaxEventTraceback));
  }
  *event.mutable_time() = FromTime(turn.wall_time);
  Check(&event, Fields::Fit());
  if (server_.keeps_records) history_.Add(event);
  turn.effects->emplace_back(rendezvous::Report{std::move(event)});
}

Event Job::EventOf(absl::string_view kind, const Node& node, std::string detail) {
  Event event = NewEvent(kind, std::move(detail));
  event.set_node_id(ShownId(node.join.node_id()));
  event.set_host(node.join.host());
  return event;
}

void Job::ReportCreated(const Turn& turn) {
  Event event = NewEvent(event_kind::kJobCreated, absl::StrCat("first node: ", settings_host_));
  event.set_min_nodes(size_.min_nodes);
  event.set_max_nodes(size_.max_nodes);
  Report(std::move(event), turn);
}

v1::Job Job::View(SteadyTime now, absl::Time start, bool with_nodes) const {
  v1::Job view;
  view.set_job_id(job_id_);
  view.set_owner(FitText(owner_, kMaxNameBytes));
  view.set_state(static_cast<v1::Job::State>(state_));
  view.set_reason(FitText(ReasonAt(now), kMaxTextBytes));
  view.set_round(round_.number());
  view.set_restart_count(budget_.used());
  *view.mutable_settings() = SettingsNow();
  view.set_node_count(static_cast<int32_t>(members_.size()));
  view.set_world_size(round_.world_size());
  *view.mutable_begin() = FromTime(start + created_.since_start());
  *view.mutable_age() = FromDuration(now - created_);
  if (verdict_) *view.mutable_verdict() = Fitted(*verdict_);
  *view.mutable_goodput() = goodput_.At(now);
  if (auto training = progress_.Summarize(round_.number(), now, with_nodes)) {
    if (ended()) training->clear_ago();
    *view.mutable_training() = *std::move(training);
  }
  if (hang_ && (state_ == JobState::kRunning || ended())) {
    *view.mutable_hang() = *hang_;
  } else if (straggler_ && state_ == JobState::kRunning) {
    *view.mutable_hang() = *straggler_;
  }
  if (!with_nodes) return view;
  for (const auto& node : members_.nodes()) {
    v1::Node* const shown = view.add_nodes();
    *shown = ViewOf(*node, state_, *server_.drained, now);
    progress_.Show(*node, round_.number(), now, shown);
  }
  return view;
}

JobRecord Job::Record(SteadyTime now) const {
  JobRecord record = NewRecord(job_id_, settings_);
  record.set_settings_host(settings_host_);
  record.set_owner(owner_);
  *record.mutable_age() = FromDuration(now - created_);
  record.set_restarts_charged(budget_.used());
  record.set_highest_round(round_.highest());
  *record.mutable_round() = round_.record();
  if (resized_) {
    record.set_resized_min_nodes(size_.min_nodes);
    record.set_resized_max_nodes(size_.max_nodes);
  }
  const std::vector<FencedNodeRecord> fenced = fence_.nodes().Record(now);
  record.mutable_fenced()->Assign(fenced.begin(), fenced.end());
  *record.mutable_restarts() = budget_.Record(now);
  *record.mutable_restarts()->mutable_wait() = FromDuration(std::max(absl::ZeroDuration(), restart_at_ - now));
  cooldowns_.Record(now, &record);
  departed_.Record(&record);
  previous_.Record(&record);
  if (!ended()) {
    for (const auto& node : members_.nodes()) {
      if (!node->in_round() && record.others_size() < 2 * DepartedNodes::kMaxLost)
        record.add_others(node->join.node_id());
    }
    return record;
  }
  *record.mutable_verdict() = *verdict_;
  for (std::string& node_id : members_.SortedIds()) record.add_told(std::move(node_id));
  return record;
}

EndedJob Job::Ended(SteadyTime now, absl::Time start) const {
  EndedJob ended;
  ended.view = View(now, start, false);
  *ended.view.mutable_end() = FromTime(start + now.since_start());
  ended.last_round = round_.highest();
  ended.told = members_.size() > 0;
  ended.gone = fence_.nodes();
  ended.gone_are_all = round_.names_all();
  ended.node_ids = members_.SortedIds();
  departed_.FillIn(&ended);
  return ended;
}

}  // namespace ddprun::rendezvous
