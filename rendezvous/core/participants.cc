#include "rendezvous/core/participants.h"

#include <algorithm>
#include <cstddef>

namespace ddprun::rendezvous {
namespace {

bool IsNewcomer(const Node* node) { return !node->in_round() && !node->may_claim_touch; }

}  // namespace

size_t CountDrainedNewcomers(const Membership& members, const DrainedHosts& drained) {
  const std::vector<Node*> nodes = members.OnHosts(drained);
  return static_cast<size_t>(std::count_if(nodes.begin(), nodes.end(), IsNewcomer));
}

LeftOutNodes LeftOut(const Membership& members, const LeftOutRules& rules) {
  LeftOutNodes left_out;
  std::vector<const Node*> drained;
  for (const Node* node : members.OnHosts(rules.drained)) {
    if (IsNewcomer(node)) {
      left_out.insert(node);
    } else {
      drained.push_back(node);
    }
  }
  std::vector<const Node*> nodes;  // nodes to leave out, the most needed first
  for (const std::string& node_id : rules.cooldowns.Nodes()) {
    const Node* node = members.Find(node_id);
    if (node != nullptr && !rules.drained.contains(node->join.host())) nodes.push_back(node);
  }
  nodes.insert(nodes.end(), drained.begin(), drained.end());
  const size_t there = members.size() - left_out.size();
  const size_t most = there <= rules.min_nodes ? 0 : std::min(nodes.size(), there - rules.min_nodes);
  left_out.insert(nodes.end() - static_cast<std::ptrdiff_t>(most), nodes.end());
  if (rules.ranked <= rules.max_nodes) return left_out;
  std::vector<const Node*> ranked;
  for (const auto& node : members.nodes()) {
    if (node->in_round() && !left_out.contains(node.get())) ranked.push_back(node.get());
  }
  std::sort(ranked.begin(), ranked.end(), [](const Node* a, const Node* b) { return a->group_rank > b->group_rank; });
  size_t too_many = ranked.size() - std::min(ranked.size(), rules.max_nodes);
  for (const Node* node : ranked) {
    if (too_many == 0) break;
    left_out.insert(node);
    --too_many;
  }
  return left_out;
}

bool ReadyForRound(const Membership& members, size_t max_nodes, const LeftOutNodes& left_out) {
  if (!members.all_stopped()) return false;
  size_t ready = members.ready();
  for (const Node* node : left_out) {
    if (node->may_claim_touch) return false;
    if (node->ready()) --ready;
  }
  return ready >= std::min(members.size() - left_out.size(), max_nodes);
}

std::vector<Node*> Participants(const Membership& members, size_t max_nodes, const LeftOutNodes& left_out) {
  std::vector<Node*> chosen;
  chosen.reserve(std::min(members.size(), max_nodes));
  // A node in touch belongs to the last assigned round, even if it did not receive it: without it no round may start
  // (protocol 4.5).
  const auto class_of = [](const Node& node) { return node.in_round() ? 0 : node.in_touch ? 1 : 2; };
  for (const int wanted : {0, 1, 2}) {
    for (const auto& node : members.nodes()) {
      if (chosen.size() == max_nodes) return chosen;
      if (!node->ready() || class_of(*node) != wanted || left_out.contains(node.get())) continue;
      chosen.push_back(node.get());
    }
  }
  return chosen;
}

RankTable RanksOf(const std::vector<Node*>& nodes) {
  std::vector<RankRequest> requests;
  requests.reserve(nodes.size());
  for (const Node* node : nodes) {
    requests.push_back(RankRequest{node->group_rank, node->node_rank, node->join.topology(), node->join.host(),
                                   node->join_order, node->join.slots(), node->join.role()});
  }
  return AssignRanks(requests);
}

std::optional<StateSource> StateSourceOf(const std::vector<Node*>& nodes, const RankTable& table) {
  std::optional<StateSource> source;
  for (const size_t i : table.order) {  // in order of ranks, so that the lowest one wins
    for (const Survivor& survivor : nodes[i]->survivors) {
      if (!survivor.has_committed_step() || (source && survivor.committed_step() <= source->step)) continue;
      source = StateSource{table.places[i].base_rank + survivor.local_rank(), survivor.committed_step()};
    }
  }
  return source;
}

}  // namespace ddprun::rendezvous
