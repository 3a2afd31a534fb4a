#ifndef DDPRUN_RENDEZVOUS_CORE_RANK_ASSIGNMENT_H_
#define DDPRUN_RENDEZVOUS_CORE_RANK_ASSIGNMENT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace ddprun::rendezvous {

// Compares names with runs of decimal digits as numbers: node7 < node66 < node066b. Returns a negative value, 0 or a
// positive value if `a` is less than, equal to or greater than `b`. A total order: names that differ only in leading
// zeros are ordered by their bytes.
int NaturalCompare(absl::string_view a, absl::string_view b);

// One participant of a round: the input of AssignRanks. The strings must outlive the call.
struct RankRequest {
  int32_t previous_rank = -1;        // group rank in the last round; -1: newcomer
  std::optional<int32_t> node_rank;  // group rank that the node requested (--node-rank)
  absl::string_view topology;
  absl::string_view host;
  uint64_t join_order = 0;  // position among all nodes by time of join; different for every node
  int32_t slots = 1;
  absl::string_view role;
};

struct RankPlace {
  int32_t group_rank = 0;
  int32_t base_rank = 0;
  int32_t base_role_rank = 0;
  int32_t role_world_size = 0;
};

struct RankTable {
  int32_t world_size = 0;
  std::vector<RankPlace> places;  // places[i]: ranks of requests[i]
  std::vector<size_t> order;      // order[r]: index of the request with group rank r
};

// Assigns ranks (protocol 3.4), in this order:
//   1. A node that requests a group rank below the number of nodes gets that rank. If several nodes request the same
//      one, a node of the last round wins, then the node that joined first.
//   2. If the old group ranks of all nodes of the last round are below the number of nodes, these nodes keep them.
//      Otherwise they are renumbered in their old order.
//   3. Newcomers fill the gaps, ordered by topology, host name (both in natural order) and time of join.
// Global ranks follow the group ranks, `slots` per node; role ranks count only nodes of the same role. O(n log n).
RankTable AssignRanks(absl::Span<const RankRequest> requests);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_RANK_ASSIGNMENT_H_
