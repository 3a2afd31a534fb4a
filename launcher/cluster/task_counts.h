#ifndef DDPRUN_LAUNCHER_CLUSTER_TASK_COUNTS_H_
#define DDPRUN_LAUNCHER_CLUSTER_TASK_COUNTS_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ddprun::launcher {

// Expands SLURM's short form of one number per node: "2(x3),1" is 2, 2, 2, 1. Numbers from 1 to 1'000'000, at most
// kMaxNodes of them. InvalidArgument: one line, without the variable's name.
absl::StatusOr<std::vector<int>> ExpandTaskCounts(absl::string_view text);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CLUSTER_TASK_COUNTS_H_
