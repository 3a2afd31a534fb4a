#ifndef DDPRUN_WORKER_RUNTIME_DDP_ALL_REDUCE_SPEED_H_
#define DDPRUN_WORKER_RUNTIME_DDP_ALL_REDUCE_SPEED_H_

#include <c10/core/Device.h>

#include <cstdint>

#include "absl/status/statusor.h"
#include "worker_runtime/ddp/bucket_policy.h"
#include "worker_runtime/process_group/process_group.h"

namespace ddprun {

// Measures how fast the group reduces tensors on `device`, with 26 all-reduces of one element and 6 of `bytes` bytes
// (clamped to 64 KiB to 4 MiB). Uses the median of each on the slowest rank. Collective; the same result on all ranks.
// Waits for a GPU. Errors: those of ProcessGroup's operations.
absl::StatusOr<AllReduceSpeed> MeasureAllReduce(ProcessGroup& group, c10::Device device, int64_t bytes);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_DDP_ALL_REDUCE_SPEED_H_
