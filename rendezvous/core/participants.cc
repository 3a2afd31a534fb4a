#include "rendezvous/core/participants.h"

#include <algorithm>
#include <cstddef>

namespace ddprun::rendezvous {

LeftOutNodes LeftOut(const Membership& members, const NodeCooldowns& cooldowns, size_t min_nodes) {
  if (!cooldowns.any() || members.size() <= min_nodes) return {};
  std::vector<const Node*> nodes;
  for (const std::string& node_id : cooldowns.Nodes()) {
    const Node* node = members.Find(node_id);
    if (node != nullptr && node->can_be_left_out) nodes.push_back(node);
  }
  const size_t most = std::min(nodes.size(), members.size() - min_nodes);
  return LeftOutNodes(nodes.end() - static_cast<std::ptrdiff_t>(most), nodes.end());
}

bool ReadyForRound(const Membership& members, size_t max_nodes, const LeftOutNodes& left_out) {
  if (members.unready_in_round() > 0 || members.with_workers() > 0) return false;
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
  // A node that is in touch is of the last round, even if it was not told: to leave it out would break what it says.
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
    requests.push_back(RankRequest{node->group_rank, node->node_rank, node->topology, node->host, node->join_order,
                                   node->slots, node->role});
  }
  return AssignRanks(requests);
}

std::optional<StateSource> StateSourceOf(const std::vector<Node*>& nodes, const RankTable& table) {
  std::optional<StateSource> source;
  for (const size_t i : table.order) {  // by rank
    for (const Survivor& survivor : nodes[i]->survivors) {
      if (!survivor.committed_step || (source && *survivor.committed_step <= source->step)) continue;
      source = StateSource{table.places[i].base_rank + survivor.local_rank, *survivor.committed_step};
    }
  }
  return source;
}

}  // namespace ddprun::rendezvous
