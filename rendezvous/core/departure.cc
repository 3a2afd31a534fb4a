#include "rendezvous/core/departure.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "rendezvous/core/phrases.h"

namespace ddprun::rendezvous {

void Departure::Add(const Node& node, Going going) {
  const bool first = nodes_++ == 0;
  if (first || (node.in_round() && !had_ranks_)) {
    loss_ = NodeFailure(node.join.host(), going.what);
    loss_.set_signal(going.signal);
    what_ = std::move(going.what);
  }
  if (!node.in_round()) return;
  had_ranks_ = true;
  if (node.state == NodeState::kSucceeded) return;
  ends_round_ = true;
  // A new node may replace a kicked one.
  if (!going.may_return && going.how != Going::How::kKicked) may_all_return_ = false;
  if (going.signal != 0) told_to_stop_ = true;
  if (!going.at_step_end) at_step_end_ = false;
}

std::string Departure::Text() const {
  return nodes_ == 1 ? what_ : absl::StrCat(what_, "; ", Counted(nodes_ - 1, "more node"), " lost with it");
}

void DeparturesOfRound::Add(const Departure& departure) {
  if (departure.had_ranks()) loss_ = departure.loss();
  if (!departure.may_all_return()) may_all_return_ = false;
  if (departure.told_to_stop()) told_to_stop_ = true;
}

void DeparturesOfRound::AddCommand() {
  by_command_ = may_all_return_ = true;
  told_to_stop_ = false;
}

absl::Duration DeparturesOfRound::WaitLimit(const JobSettings& settings) const {
  if (told_to_stop_) return absl::ZeroDuration();
  const absl::Duration join_timeout = ToDuration(settings.join_timeout());
  if (settings.max_restarts() > 0) return join_timeout;
  if (!may_all_return_) return absl::ZeroDuration();
  return by_command_ ? join_timeout : std::min(join_timeout, kReturnTime);
}

bool HeldFailure::Hold(const WorkerFailure& failure, const Membership& members) {
  absl::flat_hash_set<std::string> suspects;
  for (const auto& node : members.nodes()) {
    if (!node->connected && node->in_round() && node->state == NodeState::kRunning)
      suspects.insert(node->join.node_id());
  }
  if (suspects.empty()) return false;
  failure_ = failure;
  suspects_ = std::move(suspects);
  return true;
}

bool HeldFailure::Lost(absl::string_view node_id) {
  if (!suspects_.contains(node_id)) return false;
  Drop();
  return true;
}

std::optional<WorkerFailure> HeldFailure::CameBack(absl::string_view node_id) {
  if (suspects_.erase(node_id) == 0 || !suspects_.empty()) return std::nullopt;
  return std::exchange(failure_, NewFailure());
}

}  // namespace ddprun::rendezvous
