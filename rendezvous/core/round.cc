#include "rendezvous/core/round.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rendezvous/core/limits.h"

namespace ddprun::rendezvous {

Round::Round(RoundRecord record, uint64_t highest) : facts_(std::move(record)), highest_(highest) {
  if (!facts_.nodes().empty()) last_assigned_ = facts_.number();
  for (int i = 0; i < facts_.nodes_size(); ++i) recorded_[facts_.nodes(i).node_id()] = i;
}

std::optional<std::string> Round::CheckReported(uint64_t number) const {
  const uint64_t ahead = highest_ + kMaxRoundsAhead;
  if (number <= (facts_.number() == 0 ? std::max(ahead, max_reported_) : ahead)) return std::nullopt;
  return absl::StrCat("Join.current.round is ", number, ", but the newest round of this job is ", highest_,
                      "; no server has assigned it");
}

bool Round::Learn(uint64_t number) {
  if (number <= highest_) return false;
  highest_ = number;
  return true;
}

void Round::Assign(const Node& master, int32_t group_world_size, int32_t world_size, std::string reason,
                   google::protobuf::RepeatedPtrField<RoundNodeRecord> nodes, std::optional<StateSource> source) {
  facts_.Clear();
  facts_.set_number(++highest_);
  facts_.set_group_world_size(group_world_size);
  facts_.set_world_size(world_size);
  facts_.set_master_addr(master.join.address());
  facts_.set_master_port(master.join.store_port());
  facts_.set_master_host(master.join.host());
  facts_.set_store_secret(master.join.store_secret());
  facts_.set_reason(std::move(reason));
  *facts_.mutable_nodes() = std::move(nodes);
  source_ = source;
  server_node_.reset();
  at_step_end_ = false;
  succeeded_ = 0;
  last_assigned_ = facts_.number();
  recorded_.clear();
}

void Round::Resume(const Assignment& assignment) {
  facts_.Clear();
  facts_.set_number(assignment.round());
  facts_.set_group_world_size(assignment.group_world_size());
  facts_.set_world_size(assignment.world_size());
  facts_.set_master_addr(assignment.master_addr());
  facts_.set_master_port(assignment.master_port());
  facts_.set_master_host(assignment.master_host());
  facts_.set_store_secret(assignment.store_secret());
  facts_.set_reason(assignment.reason());
  source_.reset();
  server_node_.reset();
  if (assignment.has_server_node()) server_node_ = assignment.server_node();
  at_step_end_ = false;
  highest_ = std::max(highest_, assignment.round());
  succeeded_ = 0;
  recorded_.clear();
}

void Round::Gone(int32_t group_rank) {
  if (group_rank < facts_.nodes_size()) facts_.mutable_nodes(group_rank)->set_gone(true);
}

int32_t Round::RecordedRank(absl::string_view node_id) const {
  const auto it = recorded_.find(node_id);
  return it == recorded_.end() ? -1 : it->second;
}

const std::string* Round::RecordedSession(absl::string_view node_id) const {
  const auto it = recorded_.find(node_id);
  return it == recorded_.end() ? nullptr : &facts_.nodes(it->second).session();
}

bool Round::MayHavePlace(absl::string_view node_id, int32_t group_rank) const {
  return recorded_.empty() || RecordedRank(node_id) == group_rank;
}

Assignment Round::PlaceOf(const Node& node, int32_t restart_count) const {
  Assignment a;
  a.set_round(facts_.number());
  a.set_group_rank(node.group_rank);
  a.set_group_world_size(facts_.group_world_size());
  a.set_base_rank(node.base_rank);
  a.set_world_size(facts_.world_size());
  a.set_base_role_rank(node.base_role_rank);
  a.set_role_world_size(node.role_world_size);
  a.set_master_addr(facts_.master_addr());
  a.set_master_port(facts_.master_port());
  a.set_master_host(facts_.master_host());
  a.set_store_secret(facts_.store_secret());
  a.set_restart_count(restart_count);
  a.set_reason(facts_.reason());
  a.set_keeps_workers(node.keeps_workers);
  if (server_node_) a.set_server_node(*server_node_);
  if (source_) {
    a.set_state_source(source_->rank);
    a.set_state_step(source_->step);
  }
  return a;
}

void Round::Leave(std::string reason, std::optional<WorkerFailure> cause, bool at_step_end) {
  at_step_end_ = at_step_end;
  facts_.set_leave_reason(std::move(reason));
  facts_.clear_leave_cause();
  if (cause) *facts_.mutable_leave_cause() = *std::move(cause);
}

StopRound Round::StopOf(uint64_t number, bool keep_workers) const {
  if (number == facts_.number() && !facts_.leave_reason().empty()) {
    return NewStopRound(number, facts_.leave_reason(), leave_cause(), keep_workers, at_step_end_);
  }
  return NewStopRound(number, absl::StrCat("round ", number, " is over"), std::nullopt);
}

}  // namespace ddprun::rendezvous
