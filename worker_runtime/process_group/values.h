#ifndef DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_VALUES_H_
#define DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_VALUES_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "worker_runtime/process_group/process_group.h"

// Reductions and broadcasts of numbers and flags without tensors: a metric, the number of samples, the decision to stop
// early. Collective: all ranks must call the same function. Each call costs a round trip, and waits for the GPU if the
// group has NCCL alone. Errors: those of ProcessGroup's operations. Threads: same rules as ProcessGroup.
namespace ddprun {

// Returns the sum (average, ...) of all ranks' values, the same on all ranks. kAverage requires a double.
absl::StatusOr<double> AllReduceValue(ProcessGroup& group, double value, ReduceOp op = ReduceOp::kSum);
absl::StatusOr<int64_t> AllReduceValue(ProcessGroup& group, int64_t value, ReduceOp op = ReduceOp::kSum);
inline absl::StatusOr<int64_t> AllReduceValue(ProcessGroup& group, int value, ReduceOp op = ReduceOp::kSum) {
  return AllReduceValue(group, static_cast<int64_t>(value), op);
}

// Return true if `flag` is true on at least one rank, or on all ranks.
absl::StatusOr<bool> AnyRank(ProcessGroup& group, bool flag);
absl::StatusOr<bool> AllRanks(ProcessGroup& group, bool flag);

// Returns root's value on all ranks. The argument is ignored on other ranks.
absl::StatusOr<double> BroadcastValue(ProcessGroup& group, double value, int root = 0);
absl::StatusOr<int64_t> BroadcastValue(ProcessGroup& group, int64_t value, int root = 0);
inline absl::StatusOr<int64_t> BroadcastValue(ProcessGroup& group, int value, int root = 0) {
  return BroadcastValue(group, static_cast<int64_t>(value), root);
}

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_VALUES_H_
