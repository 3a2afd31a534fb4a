#include "rendezvous/core/participants.h"

#include <algorithm>

namespace ddprun::rendezvous {

bool ReadyForRound(const Membership& members, size_t max_nodes) {
  if (members.unready_in_round() > 0 || members.with_workers() > 0) return false;
  return members.ready() >= std::min(members.size(), max_nodes);
}

std::vector<Node*> Participants(const Membership& members, size_t max_nodes) {
  std::vector<Node*> chosen;
  chosen.reserve(std::min(members.size(), max_nodes));
  // A node that is in touch is of the last round, even if it was not told: to leave it out would break what it says.
  const auto class_of = [](const Node& node) { return node.in_round() ? 0 : node.in_touch ? 1 : 2; };
  for (const int wanted : {0, 1, 2}) {
    for (const auto& node : members.nodes()) {
      if (chosen.size() < max_nodes && node->ready() && class_of(*node) == wanted) chosen.push_back(node.get());
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
