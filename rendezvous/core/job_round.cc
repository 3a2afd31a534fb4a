// Part of Job: how a round is decided, assigned and stopped, and how the job ends.
#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "rendezvous/core/event.h"
#include "rendezvous/core/job.h"
#include "rendezvous/core/phrases.h"
#include "rendezvous/core/rank_assignment.h"
#include "rendezvous/core/verdicts.h"

namespace ddprun::rendezvous {
namespace {

// The node that runs the command for the job's end (protocol 5): the connected node of the round with the lowest group
// rank, else the one that joined first. nullptr: no node is connected.
const Node* EndCommandNode(const Membership& members) {
  const Node* best = nullptr;
  for (const auto& node : members.nodes()) {
    if (!node->connected) continue;
    if (best == nullptr || (node->in_round() && (!best->in_round() || node->group_rank < best->group_rank))) {
      best = node.get();
    }
  }
  return best;
}

}  // namespace

void Job::Enter(JobState to, std::string reason) {
  if (!IsTransition(state_, to))
    std::abort();  // a bug in this server: exiting is safer than running two rounds at once
  state_ = to;
  state_reason_ = std::move(reason);
}

void Job::Gather(const Turn& turn) {
  const int32_t nodes = usable_nodes();
  if (nodes >= size_.max_nodes) {
    return StartRound(nodes == 1 ? "the only node joined" : absl::StrCat("all ", nodes, " nodes joined"), turn);
  }
  if (state_ != JobState::kWaiting || nodes < size_.min_nodes) return;
  if (ToDuration(settings_.last_call()) <= absl::ZeroDuration()) {
    return StartRound(absl::StrCat(Counted(nodes, "node"), " joined"), turn);
  }
  Enter(JobState::kLastCall, state_reason_);
  last_call_end_ = turn.now + ToDuration(settings_.last_call());
}

void Job::StartRound(std::string reason, const Turn& turn) {
  hint_.clear();
  next_reason_ = std::move(reason);
  stop_deadline_ = std::max(turn.now, restart_at_) + ToDuration(settings_.join_timeout()) + kStopTimeout;
  Enter(JobState::kStopping, next_reason_);
  TryAssign(turn);
}

void Job::LeaveRound(std::string reason, std::optional<WorkerFailure> cause, const Turn& turn, bool at_step_end) {
  round_.Leave(reason, std::move(cause), at_step_end);
  if (TooFew() && WaitLimit() <= absl::ZeroDuration()) return EndWithTooFew(reason, turn);
  Persist(absl::StrCat("stopping round ", round_.number(), ": ", reason), turn);
  ReportStopped(turn);
  StopAll(turn);
  NoteChange(turn.now);
  if (TooFew()) return EnterWaiting(std::move(reason), turn);
  StartRound(std::move(reason), turn);
}

void Job::ReportStopped(const Turn& turn) {
  if (std::exchange(reported_stopped_, round_.number()) == round_.number()) return;
  Event event = NewEvent(event_kind::kRoundStopped, round_.leave_reason());
  if (auto cause = round_.leave_cause()) *event.mutable_failure() = *std::move(cause);
  Report(std::move(event), turn);
}

void Job::StopAll(const Turn& turn) {
  for (const auto& node : members_.nodes()) {
    if (node->state != NodeState::kRunning && node->state != NodeState::kSucceeded) continue;
    Send(*node, StopOf(*node), turn);
    // A node without workers may have been silent for longer; now it gets a full heartbeat timeout.
    if (node->state == NodeState::kSucceeded) members_.Expect(node.get(), turn.now);
    members_.SetState(node.get(), NodeState::kStopping);
  }
}

StopRound Job::StopOf(const Node& node) const {
  return round_.StopOf(node.round, node.in_round() && members_.plain_in_round() == 0);
}

void Job::EnterWaiting(std::string reason, const Turn& turn) {
  if (!waiting_since_) waiting_since_ = turn.now;
  NoteChange(turn.now);
  Enter(JobState::kWaiting, std::move(reason));
  Report(NewEvent(event_kind::kJobWaiting, state_reason_), turn);
}

std::string Job::ReasonAt(SteadyTime now) const {
  if (state_ != JobState::kStopping) return state_reason_;
  HeldUp held_up;
  for (const auto& node : members_.nodes()) {
    if (node->state != NodeState::kStopping) continue;
    if (++held_up.all_nodes <= kMaxHostsNamed) held_up.hosts.push_back(node->join.host());
  }
  if (WaitsForGoneOnly()) {
    const bool by_fence = fence_.OpensAt() > now && fence_.OpensAt() >= restart_at_;
    held_up.by_unknown = by_fence && fence_.AwaitsUnknown();
    held_up.by_gone = by_fence && !held_up.by_unknown;
    held_up.by_backoff = !by_fence && restart_at_ > now;
  }
  return DescribeHeldUp(state_reason_, held_up);
}

LeftOutNodes Job::LeftOutNow() const {
  return LeftOut(members_, {.cooldowns = cooldowns_,
                            .drained = *server_.drained,
                            .min_nodes = static_cast<size_t>(size_.min_nodes),
                            .max_nodes = static_cast<size_t>(size_.max_nodes),
                            .ranked = static_cast<size_t>(round_.group_world_size())});
}

std::string Job::DescribeLeftOut(const Node& node) const {
  if (server_.drained->contains(node.join.host()))
    return absl::StrCat("host ", node.join.host(), " is drained: its nodes get no ranks");
  if (!cooldowns_.IsActive(node.join.node_id())) {
    return absl::StrCat("the job was resized to at most ", Counted(size_.max_nodes, "node"));
  }
  return absl::StrCat(
      "node ", node.join.host(), " is left out for ", absl::FormatDuration(cooldowns_.Length(node.join.node_id())),
      " (node_cooldown): ",
      cooldowns_.IsForStuckWorker(node.join.node_id())
          ? "one of its workers is stuck in the kernel"
          : absl::StrCat("its workers failed first in ", NodeCooldowns::kRoundsInARow, " rounds in a row"));
}

void Job::NotifyLeftOut(const Turn& turn) {
  const LeftOutNodes left_out = LeftOutNow();
  if (left_out.empty()) return;
  for (const auto& node : members_.nodes()) {
    if (!node->ready() || !node->may_claim_touch || node->told_left_out || !left_out.contains(node.get())) continue;
    node->told_left_out = true;
    Send(*node, NewExcludedFromRound(round_.highest() + 1, DescribeLeftOut(*node)), turn);
  }
}

void Job::TryAssign(const Turn& turn) {
  // TooFew counts a node of a drained host until it has answered ExcludedFromRound. It can thus become true here for
  // the first time, and the drain command is then the cause.
  if (TooFew()) {
    departures_.AddCommand();
    return EnterWaiting(next_reason_, turn);
  }
  NotifyLeftOut(turn);
  if (!WaitsForGoneOnly()) return;
  if (members_.size() >= LargestSize()) fence_.Complete();
  if (members_.in_touch() >= LargestSize()) fence_.LastRoundIsThere();
  if (std::max(fence_.OpensAt(), restart_at_) > turn.now) return;
  if (!RemoveQuiet(turn) && !StopSurvivors(turn)) Assign(turn);
}

bool Job::StopSurvivors(const Turn& turn) {
  if (members_.with_survivors() == 0) return false;
  const std::vector<Node*> nodes = Participants(members_, size_.max_nodes, LeftOutNow());
  const auto plain = std::find_if(nodes.begin(), nodes.end(), [](const Node* node) { return node->plain; });
  bool any = false;
  for (Node* node : nodes) {
    if (node->survivors.empty()) continue;
    // A node outside the last round missed a round, unless it claims to be in touch and this server has not assigned a
    // round after the node's last one.
    const bool missed = !node->in_round() && (!node->in_touch || node->round < round_.last_assigned());
    if (plain == nodes.end() && !missed) continue;
    any = true;
    std::string reason =
        plain != nodes.end()
            ? absl::StrCat("restarting all workers: those of node ", (*plain)->join.host(), " can't re-form")
            : absl::StrCat("restarting the workers of node ", node->join.host(), ": they missed a round");
    Send(*node, NewStopRound(node->round, std::move(reason)), turn);
    members_.Expect(node, turn.now);  // gets a full heartbeat timeout, as in StopAll
    members_.SetState(node, NodeState::kStopping);
  }
  return any;
}

bool Job::RemoveQuiet(const Turn& turn) {
  std::vector<Node*> quiet;
  for (const auto& node : members_.nodes()) {
    if (node->ready() && members_.IsQuiet(*node, turn.now)) quiet.push_back(node.get());
  }
  Departure departure;
  for (Node* node : quiet) RemoveSilent(node, &departure, turn);
  if (!departure.empty()) OnDeparture(departure, turn);
  return !departure.empty();
}

void Job::Assign(const Turn& turn) {
  const LeftOutNodes left_out = LeftOutNow();
  const std::vector<Node*> nodes = Participants(members_, size_.max_nodes, left_out);
  const RankTable table = RanksOf(nodes);
  google::protobuf::RepeatedPtrField<RoundNodeRecord> recorded;
  for (const size_t i : table.order) {
    if (!server_.keeps_records) break;
    RoundNodeRecord* const node = recorded.Add();
    node->set_node_id(nodes[i]->join.node_id());
    node->set_session(nodes[i]->session);
  }
  round_.Assign(*nodes[table.order[0]], static_cast<int32_t>(nodes.size()), table.world_size, std::move(next_reason_),
                std::move(recorded), StateSourceOf(nodes, table));
  for (const size_t i : table.order) {
    if (nodes[i]->join.origin().in_process()) round_.SetServerNode(table.places[i].group_rank);
  }
  waiting_since_.reset();
  held_.Drop();
  departures_ = {};
  departed_.OnAssign();
  hang_.reset();
  straggler_.reset();
  Enter(JobState::kRunning, round_.reason());
  for (size_t i = 0; i < nodes.size(); ++i) {
    Node* node = nodes[i];
    node->round = round_.number();
    node->base_rank = table.places[i].base_rank;
    node->base_role_rank = table.places[i].base_role_rank;
    node->role_world_size = table.places[i].role_world_size;
    node->keeps_workers = !node->survivors.empty();
    node->may_claim_touch = true;
    node->told_left_out = false;
    members_.SetGroupRank(node, table.places[i].group_rank);
    members_.Expect(node, turn.now);
    members_.SetState(node, NodeState::kRunning);
  }
  Persist(absl::StrCat("round ", round_.number(), " assigned to ", Counted(table.order.size(), "node"), ": ",
                       round_.reason()),
          turn);
  Event event = NewEvent(event_kind::kRoundAssigned, round_.reason());
  event.set_nodes(static_cast<int32_t>(nodes.size()));
  event.set_workers(table.world_size);
  Report(std::move(event), turn);
  for (const auto& node : members_.nodes()) {
    if (left_out.empty()) break;
    if (!node->in_round() || !left_out.contains(node.get())) continue;
    members_.SetGroupRank(node.get(), -1);
    if (!cooldowns_.IsActive(node->join.node_id()) || server_.drained->contains(node->join.host())) continue;
    Report(EventOf(event_kind::kNodeCooldown, *node, DescribeLeftOut(*node)), turn);
  }
  for (const size_t i : table.order) {
    Send(*nodes[i], rendezvous::NewAssign(round_.PlaceOf(*nodes[i], budget_.used())), turn);
  }
  NoteChange(turn.now);  // spares receive Waiting
}

void Job::OnWorkerFailed(Node* node, const WorkerFailed& message, const Turn& turn) {
  if (IsStuckInKernel(message.failure()) && !ended()) {
    cooldowns_.OnStuckWorker(node->join.node_id(), turn.now);
    if (size_.max_nodes == 1) {
      return End(
          Failed(absl::StrCat(DescribeFailure(message.failure()), "; the job has no other node"), message.failure()),
          turn);
    }
    if (state_ != JobState::kRunning) return;
  }
  if (!node->in_round() || node->round != round_.number() || message.round() != round_.number()) return;
  if (node->state != NodeState::kRunning && node->state != NodeState::kStopping) return;
  switch (state_) {
    case JobState::kRunning: break;
    case JobState::kRecovering:
      if (recovery_.left_before()) return;
      recovery_.CauseReceived(node->group_rank);
      break;
    case JobState::kWaiting:
    case JobState::kLastCall:
    case JobState::kStopping: return;  // the round is already stopped: the failure is a consequence
    case JobState::kFinished:
    case JobState::kFailed: return;
  }
  const WorkerFailure& failure = message.failure();
  if (failure.restartable() && state_ == JobState::kRecovering &&
      !recovery_.Fail()) {  // a consequence of the first failure
    return CompleteRecoveryIfAllReported(turn);
  }
  Event event = EventOf(event_kind::kWorkerFailed, *node, DescribeFailure(failure));
  *event.mutable_failure() = failure;
  Report(std::move(event), turn);
  if (AllowsRestart(failure) && state_ == JobState::kRunning && held_.Hold(failure, members_)) {
    held_node_ = node->join.node_id();
    return LeaveRound(DescribeFailure(failure), failure, turn);
  }
  if (auto verdict = Charge(node->join.node_id(), failure, turn)) return End(*std::move(verdict), turn);
  if (state_ == JobState::kRunning) return LeaveRound(DescribeFailure(failure), failure, turn);
  LeaveInRecovery(DescribeFailure(failure), failure, turn);
  CompleteRecoveryIfAllReported(turn);
}

std::optional<Verdict> Job::Charge(absl::string_view node_id, const WorkerFailure& failure, const Turn& turn) {
  std::optional<Verdict> verdict = Judge(failure, &budget_, turn.now);
  if (verdict) return verdict;
  restart_at_ = turn.now + budget_.Backoff();
  cooldowns_.OnFirstCause(node_id, turn.now);
  return std::nullopt;
}

void Job::OnGone(Node* node, Going going, const Turn& turn) {
  Departure departure;
  Remove(node, std::move(going), &departure, turn);
  OnDeparture(departure, turn);
}

void Job::Remove(Node* node, Going going, Departure* departure, const Turn& turn) {
  // A group that has succeeded still counts, so the record does not mark it as gone: a restarted server has to wait for
  // its report.
  if (node->in_round() && node->state != NodeState::kSucceeded && state_ != JobState::kRecovering) {
    round_.Gone(node->group_rank);
  }
  if (held_.Lost(node->join.node_id())) {
    next_reason_ = state_reason_ = going.what;
    round_.Leave(going.what, std::nullopt);
    Persist(absl::StrCat("stopping round ", round_.number(), ": ", going.what), turn);
  }
  // A kick was already reported as kNodeKicked.
  if (going.how != Going::How::kKicked) {
    const bool left = going.how == Going::How::kLeft;
    Report(EventOf(left ? event_kind::kNodeLeft : event_kind::kNodeLost, *node, going.what), turn);
  }
  if (going.how == Going::How::kLost) departed_.AddLost(node->join.node_id());
  departure->Add(*node, std::move(going));
  if (node->in_round() && node->state != NodeState::kSucceeded && state_ == JobState::kRecovering) ForgetReport(node);
  members_.Remove(node);
}

void Job::OnDeparture(const Departure& departure, const Turn& turn) {
  NoteChange(turn.now);
  const std::string what = departure.Text();
  // Nodes of the recorded round may still report.
  if (members_.size() == 0 && state_ == JobState::kRecovering && !recovery_.anybody()) return;
  if (members_.size() == 0) return End(AllLeft(what, departure.loss()), turn);
  departures_.Add(departure);
  const bool in_vain = TooFew() && WaitLimit() <= absl::ZeroDuration();
  switch (state_) {
    case JobState::kLastCall:
    case JobState::kStopping:
      if (in_vain) return EndWithTooFew(what, turn);
      if (TooFew()) return EnterWaiting(what, turn);
      if (state_ == JobState::kStopping) TryAssign(turn);
      return;
    case JobState::kRunning:
      if (departure.ends_round()) LeaveRound(what, std::nullopt, turn, departure.at_step_end());
      return;
    case JobState::kWaiting:
      if (in_vain) return EndWithTooFew(what, turn);
      if (departure.had_ranks()) state_reason_ = what;
      return;
    case JobState::kRecovering:
      return CompleteRecoveryIfAllReported(turn);  // the recovery may have waited for this node's failure report
    case JobState::kFinished:
    case JobState::kFailed: return;
  }
}

absl::Duration Job::WaitLimit() const {
  const bool fixed_size = size_.min_nodes == size_.max_nodes;
  if (!fixed_size || resized_ || round_.number() == 0) return ToDuration(settings_.join_timeout());
  return departures_.WaitLimit(settings_);
}

void Job::EndWithTooFew(absl::string_view what, const Turn& turn) {
  End(Failed(DescribeTooFew(SettingsNow(), what, departures_.told_to_stop()), departures_.loss()), turn);
}

void Job::End(Verdict verdict, const Turn& turn, std::string actor) {
  if (state_ == JobState::kRecovering && recovery_.accounted_for() < round_.group_world_size())
    departed_.SetUnreported();
  Enter(verdict.succeeded() ? JobState::kFinished : JobState::kFailed, verdict.reason());
  for (const auto& node : members_.nodes()) {
    if (!node->connected && !node->join.origin().in_process()) departed_.ExpectForVerdict(*node, settings_);
    if (node->may_have_workers()) fence_.OnJobEnd(*node, turn.now);
  }
  if (verdict.succeeded()) hang_.reset();
  verdict_ = std::move(verdict);
  Persist(absl::StrCat(verdict_->succeeded() ? "finished: " : "failed: ", verdict_->reason()), turn);
  const absl::string_view failed = actor.empty() ? event_kind::kJobFailed : event_kind::kJobStopped;
  Event event = NewEvent(verdict_->succeeded() ? event_kind::kJobFinished : failed, verdict_->reason());
  event.set_actor(std::move(actor));
  event.set_exit_code(verdict_->exit_code());
  if (verdict_->has_first_cause()) *event.mutable_failure() = verdict_->first_cause();
  Report(std::move(event), turn);
  const Node* const runner = EndCommandNode(members_);
  for (const auto& node : members_.nodes()) {
    Finish finish = NewFinish(*verdict_);
    finish.set_runs_end_command(node.get() == runner);
    Send(*node, std::move(finish), turn);
  }
}

}  // namespace ddprun::rendezvous
