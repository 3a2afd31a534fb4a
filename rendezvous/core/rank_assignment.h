#ifndef DDPRUN_RENDEZVOUS_CORE_RANK_ASSIGNMENT_H_
#define DDPRUN_RENDEZVOUS_CORE_RANK_ASSIGNMENT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace ddprun::rendezvous {

// One node that takes part in a round. Views must outlive the call.
struct RankRequest {
  int32_t previous_rank = -1;        // group rank in the last round; -1: it was not in it
  std::optional<int32_t> node_rank;  // requested group rank
  absl::string_view topology;
  absl::string_view host;
  uint64_t join_order = 0;  // different for every node
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
  std::vector<RankPlace> places;  // of request i
  std::vector<size_t> order;      // which request has group rank r
};

// Assigns ranks (protocol 3.4). A requested rank below the number of nodes gets exactly that group rank; of two equal
// ones the survivor's, then the earlier node's. If there are as many nodes that every survivor's old group rank exists,
// survivors keep theirs, and a newcomer takes the place of a node that is gone: the ranks of the others do not move.
// Else survivors close up in their old order. Newcomers fill the gaps by topology and host (both in natural order) and
// by when they joined. Base ranks follow the group ranks, slots apart; role ranks count only nodes of the same role.
// O(n log n).
RankTable AssignRanks(absl::Span<const RankRequest> requests);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_RANK_ASSIGNMENT_H_
