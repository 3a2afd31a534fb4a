#ifndef DDPRUN_WORKER_RUNTIME_DDP_BUCKET_POLICY_H_
#define DDPRUN_WORKER_RUNTIME_DDP_BUCKET_POLICY_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "worker_runtime/ddp/ddp_options.h"

namespace ddprun {

// How large buckets may be, in bytes.
struct BucketLimits {
  // For the buckets of the first iteration: the first limits in turn, the last one for all further buckets.
  std::vector<size_t> initial;
  // For the buckets that are made afterwards, in the order in which gradients became ready.
  int64_t first_bytes = 0;
  int64_t cap_bytes = 0;
};

// Python's choice, which is part of a run's bits. Pure.
BucketLimits ChooseBucketLimits(const DdpOptions& options);

// InvalidArgument names the option that can't be, or can't be with another one: a cap that is not positive, a layout that
// does not hold each of `parameters` indices exactly once.
absl::Status CheckDdpOptions(const DdpOptions& options, size_t parameters);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_DDP_BUCKET_POLICY_H_
