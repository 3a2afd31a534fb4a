#ifndef DDPRUN_RENDEZVOUS_CORE_PARTICIPANTS_H_
#define DDPRUN_RENDEZVOUS_CORE_PARTICIPANTS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "rendezvous/core/membership.h"
#include "rendezvous/core/node_cooldowns.h"
#include "rendezvous/core/rank_assignment.h"

// Who takes part in the next round (protocol 3.3, 3.4). Pure functions.
namespace ddprun::rendezvous {

using LeftOutNodes = absl::flat_hash_set<const Node*>;

using DrainedHosts = std::set<std::string>;

// The reasons to leave nodes out of rounds. The referenced objects outlive the rules.
struct LeftOutRules {
  const NodeCooldowns& cooldowns;
  const DrainedHosts& drained;
  size_t min_nodes = 1;
  size_t max_nodes = 1;
  size_t ranked = 0;  // how many nodes the last round had; no more than max_nodes: the job was not made smaller since
};

// Nodes of drained hosts that are not of the last round: they count for nothing.
size_t CountDrainedNewcomers(const Membership& members, const DrainedHosts& drained);

// Nodes that the next round begins without (protocol 3.9, 3.10): newcomers of drained hosts; nodes with a cooldown and
// those of drained hosts, as far as `min_nodes` others are there (those with a cooldown that ends first are needed
// first); and if the last round's nodes are more than `max_nodes`, those of the highest group ranks.
LeftOutNodes LeftOut(const Membership& members, const LeftOutRules& rules);

// True if the round waits for no node that is there: all nodes of the last round are ready, which always take part
// unless they are left out, and as many newcomers as there is room for; no node has workers; and no node that is left
// out may claim to be in touch.
bool ReadyForRound(const Membership& members, size_t max_nodes, const LeftOutNodes& left_out = {});

// At most `max_nodes` that are ready: those of the last round first, then newcomers in the order in which they joined.
std::vector<Node*> Participants(const Membership& members, size_t max_nodes, const LeftOutNodes& left_out = {});

// Their ranks, in the same order.
RankTable RanksOf(const std::vector<Node*>& nodes);

// Whose training state all workers of a round take.
struct StateSource {
  int32_t rank = 0;  // RANK in that round
  int64_t step = 0;  // that it has committed

  friend bool operator==(const StateSource&, const StateSource&) = default;
};

// The survivor with the largest committed step, of equals that of the lowest rank (protocol 3.8). nullopt: none of
// these nodes has one with a state. `table`: RanksOf(nodes).
std::optional<StateSource> StateSourceOf(const std::vector<Node*>& nodes, const RankTable& table);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_PARTICIPANTS_H_
