// Rounds: how one begins, why it is left, and how the job ends.
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rendezvous/core/failure_text.h"
#include "rendezvous/core/job.h"
#include "rendezvous/core/join_check.h"
#include "rendezvous/core/phrases.h"
#include "rendezvous/core/rank_assignment.h"

namespace ddprun::rendezvous {

void Job::Enter(JobState to, std::string reason) {
  if (!IsTransition(state_, to)) std::abort();  // a bug of ours: better no server than two rounds at once
  state_ = to;
  state_reason_ = std::move(reason);
}

void Job::Gather(const Turn& turn) {
  const int32_t nodes = static_cast<int32_t>(members_.size());
  if (nodes >= settings_.max_nodes) {
    return StartRound(nodes == 1 ? "the only node joined" : absl::StrCat("all ", nodes, " nodes joined"), turn);
  }
  if (state_ != JobState::kWaiting || nodes < settings_.min_nodes) return;
  if (settings_.last_call <= absl::ZeroDuration()) {
    return StartRound(absl::StrCat(Counted(nodes, "node"), " joined"), turn);
  }
  Enter(JobState::kLastCall, state_reason_);
  last_call_end_ = turn.now + settings_.last_call;
}

void Job::StartRound(std::string reason, const Turn& turn) {
  next_reason_ = std::move(reason);
  stop_deadline_ = turn.now + settings_.join_timeout + kStopTimeout;
  Enter(JobState::kStopping, next_reason_);
  TryAssign(turn);
}

void Job::LeaveRound(std::string reason, std::optional<WorkerFailure> cause, const Turn& turn) {
  leave_reason_ = reason;
  leave_cause_ = std::move(cause);
  StopAll(turn);
  NoteChange(turn.now);
  if (static_cast<int32_t>(members_.size()) < settings_.min_nodes) return EnterWaiting(std::move(reason), turn);
  StartRound(std::move(reason), turn);
}

void Job::StopAll(const Turn& turn) {
  for (const auto& node : members_.nodes()) {
    if (node->state != NodeState::kRunning && node->state != NodeState::kSucceeded) continue;
    Tell(*node, StopRound{node->round, leave_reason_, leave_cause_}, turn);
    members_.SetState(node.get(), NodeState::kStopping);
  }
}

void Job::EnterWaiting(std::string reason, const Turn& turn) {
  if (!waiting_since_) waiting_since_ = turn.now;
  NoteChange(turn.now);
  Enter(JobState::kWaiting, std::move(reason));
}

bool Job::WaitsForGoneOnly() const {
  // Who was in the last round comes first, so all of those are waited for; of newcomers as many as there is room for.
  if (members_.unready_in_round() > 0 || members_.with_workers() > 0) return false;
  return members_.ready() >= std::min<size_t>(members_.size(), settings_.max_nodes);
}

void Job::TryAssign(const Turn& turn) {
  if (!WaitsForGoneOnly()) return;
  // Launchers that begin and are complete: this is no job of a server before this one.
  if (!has_veterans_ && members_.size() >= settings_.max_nodes) gone_.DropUnknown();
  if (gone_.AllGone() > turn.now) return;
  Assign(turn);
}

std::vector<Node*> Job::Participants() const {
  const size_t max = settings_.max_nodes;
  std::vector<Node*> chosen;
  chosen.reserve(std::min(members_.size(), max));
  for (const bool survivors : {true, false}) {
    for (const auto& node : members_.nodes()) {
      if (chosen.size() < max && node->ready() && node->in_round() == survivors) chosen.push_back(node.get());
    }
  }
  return chosen;
}

void Job::Assign(const Turn& turn) {
  const std::vector<Node*> nodes = Participants();
  std::vector<RankRequest> requests;
  requests.reserve(nodes.size());
  for (const Node* node : nodes) {
    requests.push_back(RankRequest{node->group_rank, node->node_rank, node->topology, node->host, node->join_order,
                                   node->slots, node->role});
  }
  const RankTable table = AssignRanks(requests);
  const Node& master = *nodes[table.order[0]];
  round_ = Round{++max_round_,
                 static_cast<int32_t>(nodes.size()),
                 table.world_size,
                 master.address,
                 master.store_port,
                 master.host,
                 std::move(next_reason_),
                 0};
  waiting_since_.reset();
  held_.reset();
  loss_.reset();
  leave_reason_.clear();
  leave_cause_.reset();
  Enter(JobState::kRunning, round_.reason);
  for (size_t i = 0; i < nodes.size(); ++i) {
    Node* node = nodes[i];
    node->round = round_.number;
    node->base_rank = table.places[i].base_rank;
    node->base_role_rank = table.places[i].base_role_rank;
    node->role_world_size = table.places[i].role_world_size;
    members_.SetGroupRank(node, table.places[i].group_rank);
    members_.SetState(node, NodeState::kRunning);
  }
  for (const size_t i : table.order) Tell(*nodes[i], rendezvous::Assign{AssignmentOf(*nodes[i])}, turn);
  NoteChange(turn.now);  // of spares
}

Assignment Job::AssignmentOf(const Node& node) const {
  Assignment a;
  a.round = round_.number;
  a.group_rank = node.group_rank;
  a.group_world_size = round_.group_world_size;
  a.base_rank = node.base_rank;
  a.world_size = round_.world_size;
  a.base_role_rank = node.base_role_rank;
  a.role_world_size = node.role_world_size;
  a.master_addr = round_.master_addr;
  a.master_port = round_.master_port;
  a.master_host = round_.master_host;
  a.restart_count = budget_.used();
  a.reason = round_.reason;
  return a;
}

void Job::OnWorkerFailed(Node* node, const WorkerFailed& message, const Turn& turn) {
  if (!node->in_round() || node->round != round_.number || message.round != round_.number) return;
  if (node->state != NodeState::kRunning && node->state != NodeState::kStopping) return;
  switch (state_) {
    case JobState::kRunning:
    case JobState::kRecovering: break;
    case JobState::kWaiting:
    case JobState::kLastCall:
    case JobState::kStopping: return;  // the round is left already: this only followed from that
    case JobState::kFinished:
    case JobState::kFailed: return;
  }
  WorkerFailure failure = Bounded(message.failure);
  if (!failure.restartable) return FailBecauseOf(failure, turn);
  if (state_ == JobState::kRunning) return HoldOrCharge(std::move(failure), turn);
  if (recovery_.failed) return;
  if (!budget_.Charge()) return FailBecauseOf(failure, turn);
  recovery_.failed = true;
  LeaveInRecovery(DescribeFailure(failure), failure, turn);
}

void Job::HoldOrCharge(WorkerFailure failure, const Turn& turn) {
  HeldFailure held;
  for (const auto& other : members_.nodes()) {
    if (!other->connected && other->in_round() && other->state == NodeState::kRunning) {
      held.suspects.insert(other->node_id);
    }
  }
  if (!held.suspects.empty()) {
    held.failure = failure;
    held_ = std::move(held);
  } else if (!budget_.Charge()) {
    return FailBecauseOf(failure, turn);
  }
  LeaveRound(DescribeFailure(failure), failure, turn);
}

void Job::JudgeHeldFailure(const Turn& turn) {
  const WorkerFailure failure = std::move(held_->failure);
  held_.reset();
  if (!budget_.Charge()) FailBecauseOf(failure, turn);
}

void Job::OnGone(Node* node, std::string what, const Turn& turn) {
  Departure departure;
  Remove(node, std::move(what), &departure);
  OnDeparture(departure, turn);
}

void Job::Remove(Node* node, std::string what, Departure* departure) {
  if (held_ && held_->suspects.contains(node->node_id)) {
    held_.reset();
    leave_reason_ = next_reason_ = state_reason_ = what;
    leave_cause_.reset();
  }
  const bool first = departure->nodes++ == 0;
  if (first || (node->in_round() && !departure->had_ranks)) {
    departure->loss = NodeFailure(node->host, what);
    departure->what = std::move(what);
  }
  if (node->in_round()) {
    departure->had_ranks = true;
    if (node->state != NodeState::kSucceeded) departure->ends_round = true;
    if (state_ == JobState::kRecovering && node->state != NodeState::kSucceeded) ForgetReport(node);
  }
  members_.Remove(node);
}

void Job::OnDeparture(const Departure& departure, const Turn& turn) {
  NoteChange(turn.now);
  const std::string what =
      departure.nodes == 1 ? departure.what
                           : absl::StrCat(departure.what, "; ", Counted(departure.nodes - 1, "more node"), " with it");
  if (members_.size() == 0) {
    return End(JobState::kFailed,
               Verdict{false, absl::StrCat("all launchers left; the last: ", what), departure.loss, 1}, turn);
  }
  if (departure.had_ranks) loss_ = departure.loss;
  const bool enough = static_cast<int32_t>(members_.size()) >= settings_.min_nodes;
  switch (state_) {
    case JobState::kLastCall:
    case JobState::kStopping:
      if (!enough) return EnterWaiting(what, turn);
      if (state_ == JobState::kStopping) TryAssign(turn);
      return;
    case JobState::kRunning:
      if (departure.ends_round) LeaveRound(what, std::nullopt, turn);
      return;
    case JobState::kWaiting:
      if (departure.had_ranks) state_reason_ = what;
      return;
    case JobState::kRecovering:
    case JobState::kFinished:
    case JobState::kFailed: return;
  }
}

void Job::Succeed(const Turn& turn) {
  const std::string who =
      round_.world_size == 1 ? "the only worker" : absl::StrCat("all ", round_.world_size, " workers");
  End(JobState::kFinished, Verdict{true, absl::StrCat(who, " succeeded"), std::nullopt, 0}, turn);
}

void Job::Fail(std::string reason, std::optional<WorkerFailure> cause, const Turn& turn) {
  const int32_t status = cause ? cause->ExitStatus() : 1;
  End(JobState::kFailed, Verdict{false, std::move(reason), std::move(cause), status != 0 ? status : 1}, turn);
}

void Job::FailBecauseOf(const WorkerFailure& failure, const Turn& turn) {
  Fail(DescribeGivingUp(failure, budget_.max()), failure, turn);
}

void Job::End(JobState state, Verdict verdict, const Turn& turn) {
  Enter(state, verdict.reason);
  for (const auto& node : members_.nodes()) {
    Tell(*node, Finish{verdict}, turn);
    if (!node->may_have_workers()) continue;
    const SteadyTime gone =
        node->connected ? WorkersGone(*node, turn.now) : node->last_heard + settings_.reconnect_grace;
    gone_.Add(node->node_id, node->incarnation, gone);
  }
  verdict_ = std::move(verdict);
}

}  // namespace ddprun::rendezvous
