#ifndef DDPRUN_WORKER_RUNTIME_DDP_BUCKET_POLICY_H_
#define DDPRUN_WORKER_RUNTIME_DDP_BUCKET_POLICY_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "worker_runtime/ddp/ddp_options.h"

namespace ddprun {

// Maximum sizes of buckets, in bytes.
struct BucketLimits {
  // For the buckets of the first iteration: limit i for bucket i, the last limit for all further buckets.
  std::vector<size_t> initial;
  // For the buckets rebuilt afterwards, in the order in which gradients became ready.
  int64_t first_bytes = 0;
  int64_t cap_bytes = 0;
};

// As in Python; the layout affects the bits of a run. Pure.
BucketLimits ChooseBucketLimits(const DdpOptions& options);

// InvalidArgument names the invalid option or combination: a cap that is not positive, a layout that does not contain
// each of the `parameters` indices exactly once.
absl::Status CheckDdpOptions(const DdpOptions& options, size_t parameters);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_DDP_BUCKET_POLICY_H_
