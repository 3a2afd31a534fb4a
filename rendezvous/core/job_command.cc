// Part of Job: commands of operators (protocol 3.10).
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/secret.h"
#include "base/status_macros.h"
#include "proto/time.h"
#include "rendezvous/core/command.h"
#include "rendezvous/core/fields.h"
#include "rendezvous/core/job.h"
#include "rendezvous/core/limits.h"
#include "rendezvous/core/verdicts.h"

namespace ddprun::rendezvous {
namespace {

// Finds the node with this host name or displayed id (ShownId). NOT_FOUND, or INVALID_ARGUMENT if several nodes match.
absl::StatusOr<Node*> FindNamed(const std::string& name, const std::string& job_id, const Membership& members) {
  std::vector<Node*> found;
  std::vector<std::string> ids;
  for (const auto& node : members.nodes()) {
    std::string id = ShownId(node->join.node_id());
    if (node->join.host() != name && id != name) continue;
    found.push_back(node.get());
    ids.push_back(std::move(id));
  }
  if (found.empty()) return absl::NotFoundError(absl::StrCat("job ", job_id, " has no node ", name));
  if (found.size() > 1) {
    return absl::InvalidArgumentError(absl::StrCat("job ", job_id, " has ", found.size(), " nodes on host ", name,
                                                   "; name one of them by its id: ", absl::StrJoin(ids, ", ")));
  }
  return found[0];
}

}  // namespace

absl::Status Job::Stop(const std::string& actor, const Turn& turn) {
  // Without launchers the verdict would reach none, and nodes that still run the job may be about to reconnect.
  if (members_.size() == 0) {
    return absl::UnavailableError(absl::StrCat(
        "job ", job_id_, ": no launcher is connected yet; try again when they have reconnected, or stop them"));
  }
  Verdict verdict = Failed(absl::StrCat("stopped by ", actor), std::nullopt);
  verdict.set_exit_code(kExitStopped);
  End(std::move(verdict), turn, actor);
  return absl::OkStatus();
}

absl::Status Job::Kick(const std::string& name, const std::string& actor, const Turn& turn) {
  DDPRUN_ASSIGN_OR_RETURN(Node* const node, FindNamed(name, job_id_, members_));
  if (!node->connected) {
    return absl::UnavailableError(absl::StrCat("node ", node->join.host(), " of job ", job_id_,
                                               " has lost its connection; try again in a moment"));
  }
  std::string what = absl::StrCat("node ", node->join.host(), " kicked by ", actor);
  departed_.AddKicked(node->join.node_id(), actor);
  if (round_.number() > 0) Persist(what, turn);  // without a round the record on disk is the previous job's, see Resize
  Event event = EventOf(event_kind::kNodeKicked, *node, what);
  event.set_actor(actor);
  Report(std::move(event), turn);
  Send(*node, NewFinish(Kicked(actor)), turn);
  if (node->may_have_workers()) fence_.OnLeft(*node, turn.now);
  if (node->in_round()) departures_.AddCommand();
  OnGone(node, Going{.what = std::move(what), .how = Going::How::kKicked}, turn);
  return absl::OkStatus();
}

absl::Status Job::Resize(const JobSize& size, const std::string& actor, const Turn& turn) {
  if (size.min_nodes < 1 || size.min_nodes > size.max_nodes || size.max_nodes > kMaxNodes) {
    return absl::InvalidArgumentError(absl::StrCat("can't resize job ", job_id_, " to ", size.min_nodes, ":",
                                                   size.max_nodes, ": need 1 <= min <= max <= ", kMaxNodes));
  }
  if (state_ == JobState::kRecovering) {
    return absl::UnavailableError(
        absl::StrCat("job ", job_id_, " waits for its nodes after a server restart; try again when it runs"));
  }
  resized_ = true;
  size_ = size;
  const std::string what = absl::StrCat("resized to ", size.min_nodes, ":", size.max_nodes, " nodes by ", actor);
  // Until this job has a round, the record on disk is that of the previous job and must stay: workers of its rounds may
  // still run.
  if (round_.number() > 0) Persist(what, turn);
  Event event = NewEvent(event_kind::kJobResized, what);
  event.set_actor(actor);
  event.set_min_nodes(size.min_nodes);
  event.set_max_nodes(size.max_nodes);
  Report(std::move(event), turn);
  ApplyChange(what, turn);
  return absl::OkStatus();
}

absl::StatusOr<InspectedNodes> Job::Inspect(const v1::Inspect& question, const Turn& turn) const {
  if (state_ != JobState::kRunning) {
    const std::string reason = ReasonAt(turn.now);
    return absl::FailedPreconditionError(absl::StrCat("job ", job_id_, " has no running round; it is ", Name(state_),
                                                      reason.empty() ? "" : ": ", reason));
  }
  const std::set<int32_t> ranks(question.ranks().begin(), question.ranks().end());
  for (const int32_t rank : ranks) {
    if (rank >= 0 && rank < round_.world_size()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("job ", job_id_, " has no rank ", rank, ": its ranks are 0 to ", round_.world_size() - 1));
  }
  std::map<int32_t, std::map<bool, uint64_t>> after;
  for (const v1::OutputPosition& position : question.after()) {
    after[position.rank()][position.is_stderr()] = position.end();
  }
  v1::Inspect of_all = question;
  of_all.clear_ranks();
  of_all.clear_after();
  const absl::Duration since = NearestDuration(question.since());
  of_all.clear_since();
  if (question.has_since() && since < absl::InfiniteDuration()) *of_all.mutable_since() = FromDuration(since);
  InspectedNodes found;
  found.round = round_.number();
  for (const auto& node : members_.nodes()) {
    if (!node->in_round()) continue;
    InspectedNodes::Node inspected{node->join.node_id(), node->join.incarnation(), node->join.host(), node->connected};
    const int32_t end = node->base_rank + node->join.slots();
    if (ranks.empty()) {
      for (int32_t rank = node->base_rank; rank < end; ++rank) inspected.ranks.push_back(rank);
    } else {
      inspected.ranks.assign(ranks.lower_bound(node->base_rank), ranks.lower_bound(end));
    }
    if (inspected.ranks.empty()) continue;
    v1::Inspect inspect = of_all;
    inspect.set_round(found.round);
    inspect.mutable_ranks()->Assign(inspected.ranks.begin(), inspected.ranks.end());
    for (const int32_t rank : inspected.ranks) {
      const auto positions = after.find(rank);
      if (positions == after.end()) continue;
      for (const auto& [is_stderr, position] : positions->second) {
        v1::OutputPosition* const of_node = inspect.add_after();
        of_node->set_rank(rank);
        of_node->set_is_stderr(is_stderr);
        of_node->set_end(position);
      }
    }
    Send(*node, std::move(inspect), turn);
    found.nodes.push_back(std::move(inspected));
  }
  return found;
}

void Job::ApplyChange(const std::string& what, const Turn& turn) {
  NoteChange(turn.now);
  switch (state_) {
    case JobState::kLastCall:
      if (!TooFew()) return Gather(turn);
      departures_.AddCommand();
      return EnterWaiting(what, turn);
    case JobState::kWaiting: return Gather(turn);
    case JobState::kStopping:
      if (!TooFew()) return TryAssign(turn);
      departures_.AddCommand();
      return EnterWaiting(what, turn);
    case JobState::kRunning: {
      if (round_.any_succeeded()) return;  // the job is about to finish: no new round
      const int32_t nodes = round_.group_world_size();
      const LeftOutNodes left_out = LeftOutNow();
      const bool has_to_go =
          std::any_of(left_out.begin(), left_out.end(), [](const Node* node) { return node->in_round(); });
      if (has_to_go || nodes < size_.min_nodes) return LeaveRound(what, std::nullopt, turn, true);
      return ConsiderAllLate(turn);
    }
    case JobState::kRecovering:
    case JobState::kFinished:
    case JobState::kFailed: return;
  }
}

JobSettings Job::SettingsNow() const {
  JobSettings settings = settings_;
  settings.set_min_nodes(size_.min_nodes);
  settings.set_max_nodes(size_.max_nodes);
  return settings;
}

}  // namespace ddprun::rendezvous
