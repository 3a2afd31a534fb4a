#ifndef DDPRUN_LAUNCHER_CLUSTER_HOST_LIST_H_
#define DDPRUN_LAUNCHER_CLUSTER_HOST_LIST_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ddprun::launcher {

// The hosts of one of SLURM's compressed lists, such as "node[1-3,07],gpu[01-10]". Rules:
//   - names are separated by commas; their order is kept, and so are those that come twice
//   - brackets hold numbers and ranges, separated by commas: a range counts up, with at least as many digits as its
//     first number has: [08-10] is 08, 09, 10
//   - several brackets in a name are a product whose last bracket runs fastest: a[1-2]b[3-4] is a1b3, a1b4, a2b3, a2b4
//   - text may follow the last bracket
// At most kMaxNodes hosts of kMaxNameBytes (rendezvous/core/limits.h) each; this is found out before they are made.
// InvalidArgument: one line that says what is wrong and at which place, counted from 1. So are lists that SLURM's
// own tools read in their own way: "n[1-" (for them "n]"), "n[1-]", names that are missing between commas, blanks.
absl::StatusOr<std::vector<std::string>> ExpandHostList(absl::string_view list);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CLUSTER_HOST_LIST_H_
