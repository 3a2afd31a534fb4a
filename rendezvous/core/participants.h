#ifndef DDPRUN_RENDEZVOUS_CORE_PARTICIPANTS_H_
#define DDPRUN_RENDEZVOUS_CORE_PARTICIPANTS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "rendezvous/core/membership.h"
#include "rendezvous/core/rank_assignment.h"

// Who takes part in the next round (protocol 3.3, 3.4). Pure functions.
namespace ddprun::rendezvous {

// Nobody has to be waited for but nodes that are gone: those of the last round, who always take part, are ready, and of
// newcomers as many as there is room for; and nobody who is there has workers.
bool ReadyForRound(const Membership& members, size_t max_nodes);

// At most `max_nodes` that are ready: those of the last round first, then newcomers in the order in which they joined.
std::vector<Node*> Participants(const Membership& members, size_t max_nodes);

// Their ranks, in the same order.
RankTable RanksOf(const std::vector<Node*>& nodes);

// Whose training state all workers of a round take.
struct StateSource {
  int32_t rank = 0;  // RANK in that round
  int64_t step = 0;  // that it has committed

  friend bool operator==(const StateSource&, const StateSource&) = default;
};

// The survivor with the largest committed step, of equals that of the lowest rank (protocol 3.8). nullopt: none of these
// nodes has one with a state. `table`: RanksOf(nodes).
std::optional<StateSource> StateSourceOf(const std::vector<Node*>& nodes, const RankTable& table);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_PARTICIPANTS_H_
