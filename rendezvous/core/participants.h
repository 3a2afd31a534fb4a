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

// Selects the nodes of the next round (protocol 3.3, 3.9, 3.10) and their ranks. Pure functions. A newcomer is a node
// outside the last round.
namespace ddprun::rendezvous {

using LeftOutNodes = absl::flat_hash_set<const Node*>;

using DrainedHosts = std::set<std::string>;

// Input of LeftOut. The referenced objects must outlive the rules.
struct LeftOutRules {
  const NodeCooldowns& cooldowns;
  const DrainedHosts& drained;
  size_t min_nodes = 1;
  size_t max_nodes = 1;
  size_t ranked = 0;  // number of nodes of the last round; more than max_nodes after a resize
};

// Returns the number of newcomers of drained hosts that do not claim to be in touch: these get no ranks.
size_t CountDrainedNewcomers(const Membership& members, const DrainedHosts& drained);

// Returns the nodes that are left out of the next round (protocol 3.9, 3.10):
//   - newcomers of drained hosts;
//   - nodes of drained hosts and nodes with a cooldown, as long as `min_nodes` others remain; if some of them are
//     needed after all, first those whose cooldown ends first, then those of drained hosts;
//   - if the last round had more than `max_nodes` nodes, those with the highest group ranks.
LeftOutNodes LeftOut(const Membership& members, const LeftOutRules& rules);

// True if the next round waits for no node of the job: no node has workers, all nodes of the last round are ready, and
// so are as many newcomers as there is room for, and no node that is left out may claim to be in touch.
bool ReadyForRound(const Membership& members, size_t max_nodes, const LeftOutNodes& left_out = {});

// Returns the ready nodes that take part, at most `max_nodes`: first those of the last round, then newcomers in touch,
// then other newcomers, each in order of their joins.
std::vector<Node*> Participants(const Membership& members, size_t max_nodes, const LeftOutNodes& left_out = {});

// Assigns ranks to these nodes; RankTable::places is in the same order.
RankTable RanksOf(const std::vector<Node*>& nodes);

// The survivor whose training state all workers of a round take (protocol 3.8).
struct StateSource {
  int32_t rank = 0;  // RANK in the new round
  int64_t step = 0;  // committed step of the survivor

  friend bool operator==(const StateSource&, const StateSource&) = default;
};

// Returns the survivor with the largest committed step, the lowest rank among equals (protocol 3.8); nullopt if none
// has a state. `table`: RanksOf(nodes).
std::optional<StateSource> StateSourceOf(const std::vector<Node*>& nodes, const RankTable& table);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_PARTICIPANTS_H_
