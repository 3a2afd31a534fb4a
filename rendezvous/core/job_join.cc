// Part of Job: new nodes, nodes that return, and recovery after a restart of the server (protocol 4.3, 4.4).
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "rendezvous/core/job.h"
#include "rendezvous/core/join_check.h"
#include "rendezvous/core/limits.h"
#include "rendezvous/core/verdicts.h"

namespace ddprun::rendezvous {
namespace {

using Phase = Join::Phase;

// Maximum number of nodes of a job including spares, to bound memory.
constexpr size_t kMaxNodesPresent = 2 * kMaxNodes;

uint64_t ReportedRound(const Join& join) { return join.has_current() ? join.current().round() : 0; }

}  // namespace

void Job::OnJoin(const Join& join, const Turn& turn) {
  const bool of_earlier_job = previous_.HadRound(ReportedRound(join)) && !HasNode(join.node_id());
  const std::string* kicked_by = departed_.KickedBy(join.node_id());
  if ((of_earlier_job || kicked_by != nullptr) && !fence_.IsOvertaken(join) && IsTrueNode(join)) {
    return SendVerdict(join, of_earlier_job ? *previous_.verdict : Kicked(*kicked_by), turn);
  }
  if (auto problem = CheckSameSettings(job_id_, settings_host_, settings_, join.host(), join.settings())) {
    Hint(absl::StrCat("refused ", join.host(), ": ", *problem), turn);
    return Refuse(join.node_id(), join.incarnation(), *std::move(problem), turn);
  }
  if (auto problem = round_.CheckReported(ReportedRound(join)))
    return Refuse(join.node_id(), join.incarnation(), *std::move(problem), turn);
  if (!IsTrueNode(join))
    return Refuse(join.node_id(), join.incarnation(), OtherLaunchersId(job_id_, join.host()), turn);
  if (Node* node = members_.Find(join.node_id()); node != nullptr) {
    // The launcher has opened a newer stream in the meantime.
    if (join.incarnation() <= node->join.incarnation()) {
      return Close(join.node_id(), join.incarnation(), rendezvous::Close::Why::kReplaced, turn);
    }
    return OnRejoin(node, join, turn);
  }
  if (fence_.IsOvertaken(join)) {
    return Close(join.node_id(), join.incarnation(), rendezvous::Close::Why::kReplaced, turn);
  }
  if (join.has_node_rank()) {
    const Node* holder = members_.FindByRequestedRank(join.node_rank());
    if (holder != nullptr && holder->connected && !members_.IsQuiet(*holder, turn.now)) {
      std::string problem =
          absl::StrCat("--node-rank ", join.node_rank(), " of ", join.host(), " is already in use by ",
                       holder->join.host(), "; each node of job \"", job_id_, "\" needs its own");
      Hint(absl::StrCat("refused ", join.host(), ": ", problem), turn);
      return Refuse(join.node_id(), join.incarnation(), std::move(problem), turn);
    }
  }
  if (members_.size() >= kMaxNodesPresent) {
    return Refuse(join.node_id(), join.incarnation(),
                  absl::StrCat("job \"", job_id_, "\" is full (", members_.size(), " nodes)"), turn);
  }
  OnNewcomer(join, turn);
}

bool Job::MayBeOneJobWith(const Job& other) const {
  const auto waits = [](const Job& job) { return job.state_ == JobState::kWaiting && job.round_.highest() == 0; };
  return waits(*this) && waits(other) && size_.min_nodes == other.size_.min_nodes &&
         size_.max_nodes == other.size_.max_nodes && usable_nodes() + other.usable_nodes() <= size_.max_nodes;
}

void Job::Hint(std::string hint, const Turn& turn) {
  if (state_ != JobState::kWaiting) return;
  hint_ = std::move(hint);
  NoteChange(turn.now);
}

bool Job::IsTrueNode(const Join& join) const {
  if (const Node* node = members_.Find(join.node_id())) return Membership::IsOfSession(node->session, join);
  for (const std::string* session : {fence_.FindSession(join.node_id()), round_.RecordedSession(join.node_id())}) {
    if (session != nullptr && !Membership::IsOfSession(*session, join)) return false;
  }
  return true;
}

void Job::SendVerdict(const Join& join, Verdict verdict, const Turn& turn) {
  fence_.OnToldEnd(join, turn.now);
  const bool has_workers = join.phase() == Join::PHASE_RUNNING || join.phase() == Join::PHASE_STOPPING;
  // Until this job has a round, the record on disk is that of the previous job and must stay.
  if (has_workers && round_.number() > 0) Persist("", turn);
  turn.effects->emplace_back(
      rendezvous::Tell{job_id_, join.node_id(), join.incarnation(), NewFinish(std::move(verdict))});
  if (state_ == JobState::kStopping) TryAssign(turn);
}

void Job::OnNewcomer(const Join& join, const Turn& turn) {
  Node* node = members_.Add(join, turn.now);
  const bool is_known = departed_.OnJoin(join.node_id());
  node->round = ReportedRound(join);
  fence_.OnJoin(join);
  SendWelcome(node, join, turn);
  // A higher incarnation has joined before: an earlier server, or this one before it was lost.
  Report(EventOf(join.incarnation() > 1 ? event_kind::kNodeReturned : event_kind::kNodeJoined, *node,
                 Counted(node->join.slots(), "worker")),
         turn);
  const bool starts_recovery = StartsRecovery(join);
  LearnRound(node->round, turn);
  if (starts_recovery) {
    Enter(JobState::kRecovering, std::string(kRecoveringReason));
    budget_.LearnUsed(previous_.restarts);
    recovery_.Begin(settings_, turn.now);
  }
  if (state_ == JobState::kRecovering) {
    TakeReport(node, join, turn);
    CompleteRecoveryIfAllReported(turn);
    return NoteChange(turn.now);
  }
  TakePhase(node, join, turn);
  NoteChange(turn.now);
  switch (state_) {
    case JobState::kWaiting:
    case JobState::kLastCall: return Gather(turn);
    case JobState::kStopping: return TryAssign(turn);
    case JobState::kRunning:
      ConsiderLate(*node, turn);
      // The node is a spare. Records name spares, so that a restarted server knows them.
      if (state_ == JobState::kRunning && !is_known) Persist(absl::StrCat("node ", join.host(), " stands by"), turn);
      return;
    case JobState::kRecovering:
    case JobState::kFinished:
    case JobState::kFailed: return;
  }
}

void Job::OnRejoin(Node* node, const Join& join, const Turn& turn) {
  if (node->connected) Close(node->join.node_id(), node->join.incarnation(), rendezvous::Close::Why::kReplaced, turn);
  node->join.set_incarnation(join.incarnation());
  members_.Reconnected(node, turn.now);
  SendWelcome(node, join, turn);
  Report(EventOf(event_kind::kNodeReturned, *node, "reconnected"), turn);
  LearnRound(ReportedRound(join), turn);
  switch (state_) {
    case JobState::kWaiting:
    case JobState::kLastCall:
    case JobState::kStopping: TakePhase(node, join, turn); break;
    case JobState::kRunning: ReconcileRunning(node, join, turn); break;
    case JobState::kRecovering:
      ForgetReport(node);
      members_.SetState(node, NodeState::kIdle);  // TakeReport sets the reported state
      TakeReport(node, join, turn);
      CompleteRecoveryIfAllReported(turn);
      break;
    case JobState::kFinished:
    case JobState::kFailed: return;
  }
  if (const auto failure = held_.CameBack(node->join.node_id())) {
    if (auto verdict = Charge(held_node_, *failure, turn)) {
      End(*std::move(verdict), turn);
    } else {
      Persist("", turn);
    }
  }
  if (state_ == JobState::kStopping) TryAssign(turn);
  NoteChange(turn.now);
}

void Job::LearnRound(uint64_t number, const Turn& turn) {
  if (!round_.Learn(number)) return;
  fence_.OnUnknownRound();
  // Without a round of its own the job needs no record: after a restart its nodes begin it anew.
  if (round_.number() > 0) Persist("", turn);
}

void Job::TakePhase(Node* node, const Join& join, const Turn& turn) {
  node->round = ReportedRound(join);
  switch (join.phase()) {
    case Join::PHASE_IDLE:
      node->join.set_address(join.address());
      node->join.set_store_port(join.store_port());
      node->join.set_store_secret(join.store_secret());
      members_.SetState(node, NodeState::kIdle);
      return members_.SetSurvivors(node, join.survivors(), join.can_reform());
    case Join::PHASE_RUNNING:
    case Join::PHASE_SUCCEEDED: members_.SetState(node, NodeState::kStopping); return Send(*node, StopOf(*node), turn);
    case Join::PHASE_STOPPING: return members_.SetState(node, NodeState::kStopping);
    default: return;  // does not pass Validate
  }
}

void Job::ReconcileRunning(Node* node, const Join& join, const Turn& turn) {
  if (!node->in_round()) {
    const bool was_idle = node->state == NodeState::kIdle;
    TakePhase(node, join, turn);
    if (!was_idle) ConsiderLate(*node, turn);
    return;
  }
  const uint64_t reported = ReportedRound(join);
  if (reported < round_.number() && join.phase() == Join::PHASE_IDLE && node->state == NodeState::kRunning) {
    const bool is_master = node->group_rank == 0;
    if (is_master && !round_.HasStoreAt(join.address(), join.store_port())) {
      TakePhase(node, join, turn);
      return LeaveRound(absl::StrCat("the store address of node ", node->join.host(), " changed"), std::nullopt, turn);
    }
    node->may_claim_touch = true;
    return Send(*node, rendezvous::NewAssign(round_.PlaceOf(*node, budget_.used())), turn);
  }
  if (reported == round_.number()) {
    switch (join.phase()) {
      case Join::PHASE_RUNNING:
        if (node->state == NodeState::kStopping) members_.SetState(node, NodeState::kRunning);
        for (const auto& report : {hang_, straggler_}) {
          if (report && node->group_rank != 0) Send(*node, *report, turn);
        }
        return;
      case Join::PHASE_SUCCEEDED: return OnSucceeded(node, NewGroupSucceeded(reported), turn);
      case Join::PHASE_STOPPING:
        // The broken stream may have lost a WorkerFailed. It is sent again, or Ready follows; either decides.
        if (node->state == NodeState::kRunning) members_.SetState(node, NodeState::kStopping);
        return;
      default: break;
    }
  }
  TakePhase(node, join, turn);
  LeaveRound(absl::StrCat("node ", node->join.host(), " stopped its workers"), std::nullopt, turn);
}

void Job::ConsiderLate(const Node& node, const Turn& turn) {
  if (node.state != NodeState::kIdle) return;  // OnReady will call this again
  if (round_.any_succeeded()) return;          // the job is about to finish: no new round
  const LeftOutNodes left_out = LeftOutNow();
  if (left_out.contains(&node)) return;
  // If the round is full, the node is a spare, unless it can replace a node of a drained host.
  const bool replaces = std::any_of(left_out.begin(), left_out.end(), [&](const Node* other) {
    return other->in_round() && server_.drained->contains(other->join.host());
  });
  if (round_.group_world_size() >= size_.max_nodes && !replaces) return;
  LeaveRound(absl::StrCat("node ", node.join.host(), " joined"), std::nullopt, turn, true);
}

void Job::ConsiderAllLate(const Turn& turn) {
  const LeftOutNodes left_out = LeftOutNow();
  for (const auto& node : members_.nodes()) {
    if (node->in_round() || node->state != NodeState::kIdle || left_out.contains(node.get())) continue;
    return ConsiderLate(*node, turn);
  }
}

bool Job::StartsRecovery(const Join& join) const {
  if (state_ != JobState::kWaiting && state_ != JobState::kLastCall) return false;
  return round_.number() == 0 && join.has_current() && join.current().round() >= previous_.resume_from;
}

void Job::TakeReport(Node* node, const Join& join, const Turn& turn) {
  const uint64_t reported = ReportedRound(join);
  if (!join.has_current() || reported < round_.number()) return TakeReportOfOlder(node, join, turn);
  const bool is_new = reported > round_.number();
  if (is_new) ResumeRound(join.current(), turn);
  const Assignment& a = join.current();
  if (a.group_world_size() != round_.group_world_size() || !round_.MayHavePlace(node->join.node_id(), a.group_rank()) ||
      !round_.HasStoreAt(a.master_addr(), a.master_port()) || !recovery_.Report(a.group_rank())) {
    return TakePhase(node, join,
                     turn);  // contradicts the record or another node's report: the node is not part of the round
  }
  node->round = reported;
  node->base_rank = a.base_rank();
  node->base_role_rank = a.base_role_rank();
  node->role_world_size = a.role_world_size();
  members_.SetGroupRank(node, a.group_rank());
  if (budget_.LearnUsed(a.restart_count()) || is_new) {
    Persist(absl::StrCat("round ", reported, " recovered from its nodes' reports"), turn);
  }
  if (join.phase() == Join::PHASE_RUNNING || join.phase() == Join::PHASE_STOPPING) fence_.LatestRoundRuns();
  // The launcher knows that the process of the earlier server has ended, and with it the node in that process.
  const bool lost_node =
      join.origin().server_node_ended() && a.has_server_node() && !recovery_.HasReported(a.server_node());
  if (lost_node) {
    recovery_.Gone(a.server_node());
    restart_at_ = std::max(restart_at_,
                           turn.now + ToDuration(settings_.reconnect_grace()));  // like any node whose stream has ended
  }
  switch (join.phase()) {
    case Join::PHASE_RUNNING: members_.SetState(node, NodeState::kRunning); break;
    case Join::PHASE_SUCCEEDED:
      members_.SetState(node, NodeState::kSucceeded);
      round_.AddSuccess();
      break;
    case Join::PHASE_STOPPING:
      // WorkerFailed or Ready follows.
      recovery_.ExpectCause(a.group_rank());
      members_.SetState(node, NodeState::kStopping);
      break;
    case Join::PHASE_IDLE:
      TakePhase(node, join, turn);
      LeaveInRecovery(absl::StrCat("round ", reported, " was being stopped when its nodes joined again"), std::nullopt,
                      turn);
      return;
    default: return;  // does not pass Validate
  }
  if (lost_node && !recovery_.leaving()) {
    return LeaveInRecovery(
        absl::StrCat("node lost: the launcher on ", node->join.host(), " that hosted the rendezvous server has ended"),
        std::nullopt, turn);
  }
  if (recovery_.leaving()) StopAll(turn);
}

void Job::TakeReportOfOlder(Node* node, const Join& join, const Turn& turn) {
  TakePhase(node, join, turn);
  // The earlier server ended before this node had received the round.
  const int32_t group_rank = round_.RecordedRank(node->join.node_id());
  if (group_rank < 0 || !recovery_.Report(group_rank)) return;
  members_.SetGroupRank(node, group_rank);
  LeaveInRecovery(absl::StrCat("node ", node->join.host(), " did not receive round ", round_.number(),
                               " before the server restarted"),
                  std::nullopt, turn);
}

void Job::ResumeRound(const Assignment& assignment, const Turn& turn) {
  StopAll(turn);
  for (const auto& node : members_.nodes()) members_.SetGroupRank(node.get(), -1);
  recovery_.StartOver();
  round_.Resume(assignment);
}

void Job::ForgetReport(Node* node) {
  if (!node->in_round()) return;
  recovery_.Forget(node->group_rank);
  if (node->state == NodeState::kSucceeded) round_.TakeBackSuccess();
  members_.SetGroupRank(node, -1);
}

void Job::LeaveInRecovery(std::string reason, std::optional<WorkerFailure> cause, const Turn& turn) {
  if (!recovery_.leaving() || cause) {
    round_.Leave(std::move(reason), std::move(cause));
    Persist(absl::StrCat("stopping round ", round_.number(), ": ", round_.leave_reason()), turn);
  }
  recovery_.Leave();
  ReportStopped(turn);
  StopAll(turn);
}

void Job::CompleteRecoveryIfAllReported(const Turn& turn) {
  if (state_ != JobState::kRecovering) return;
  const int32_t untold = static_cast<int32_t>(members_.untold());
  if (recovery_.accounted_for() + untold < round_.group_world_size()) return;
  if (untold > 0) {
    LeaveInRecovery(absl::StrCat(Counted(untold, "node"), " of round ", round_.number(),
                                 " did not receive it before the server restarted"),
                    std::nullopt, turn);
  }
  if (recovery_.awaits_cause())
    return;  // a worker's failure is charged even if the round was stopped for another reason before
  CompleteRecovery(turn);
}

void Job::CompleteRecovery(const Turn& turn) {
  if (recovery_.leaving()) return LeaveRound(round_.leave_reason(), round_.leave_cause(), turn);
  if (round_.all_succeeded()) return End(Succeeded(round_.world_size()), turn);
  waiting_since_.reset();
  Enter(JobState::kRunning, round_.reason());
  goodput_.OnEvent(event_kind::kRoundAssigned, turn.now);  // the earlier server assigned it; its goodput continues
  ConsiderAllLate(turn);
}

void Job::GiveUpRecovery(const Turn& turn) {
  if (members_.size() == 0) {
    return End(Failed(absl::StrCat("no node of round ", round_.number(), " reconnected after the server restarted"),
                      std::nullopt),
               turn);
  }
  if (recovery_.leaving()) return LeaveRound(round_.leave_reason(), round_.leave_cause(), turn);
  const int32_t all = round_.group_world_size();
  LeaveRound(absl::StrCat(all - recovery_.reported(), " of ", Counted(all, "node"), " of round ", round_.number(),
                          " did not reconnect after the server restarted"),
             std::nullopt, turn);
}

}  // namespace ddprun::rendezvous
