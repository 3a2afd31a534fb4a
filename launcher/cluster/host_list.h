#ifndef DDPRUN_LAUNCHER_CLUSTER_HOST_LIST_H_
#define DDPRUN_LAUNCHER_CLUSTER_HOST_LIST_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

// SLURM's compressed lists, with one entry for each node.
namespace ddprun::launcher {

// Expands one of SLURM's compressed host lists, such as "node[1-3,07],gpu[01-10]". Rules:
//   - names are separated by commas; order and duplicates are kept
//   - brackets hold numbers and ranges, separated by commas: a range counts up, with at least as many digits as its
//     first number: [08-10] is 08, 09, 10
//   - several brackets in a name form a product whose last bracket varies fastest: a[1-2]b[3-4] is a1b3, a1b4, a2b3,
//     a2b4
//   - text may follow the last bracket
// At most kMaxNodes hosts of kMaxNameBytes (rendezvous/core/limits.h) each, which is checked before expansion.
// InvalidArgument: one line with the error and its position, counted from 1. Also for lists that SLURM's own tools
// interpret in special ways: "n[1-" (to them "n]"), "n[1-]", missing names between commas, blanks.
absl::StatusOr<std::vector<std::string>> ExpandHostList(absl::string_view list);

// Expands SLURM's short form of one number per node: "2(x3),1" is 2, 2, 2, 1. Numbers from 1 to 1'000'000, at most
// kMaxNodes of them. InvalidArgument: one line, without the variable's name.
absl::StatusOr<std::vector<int>> ExpandTaskCounts(absl::string_view text);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CLUSTER_HOST_LIST_H_
