#ifndef DDPRUN_WORKER_RUNTIME_DDP_BUCKET_POLICY_H_
#define DDPRUN_WORKER_RUNTIME_DDP_BUCKET_POLICY_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "worker_runtime/ddp/ddp_options.h"

namespace ddprun {

// Maximum sizes of buckets, in bytes.
struct BucketLimits {
  // Limits of the first iteration's buckets: limit i for bucket i, the last limit for all further buckets.
  std::vector<size_t> initial;
  // Limits of the buckets rebuilt afterwards, in the order in which gradients became ready.
  int64_t first_bytes = 0;
  int64_t cap_bytes = 0;
};

// Returns the same limits as Python; the layout affects the bits of a run. Pure.
BucketLimits ChooseBucketLimits(const DdpOptions& options);

// An all-reduce of n bytes takes about latency + n / bytes_per_second.
struct AllReduceSpeed {
  absl::Duration latency;
  double bytes_per_second = 0;
};

// Returns the MiB per bucket for a model with this many bytes of gradients in total. Every bucket of c bytes costs a
// latency, and the last one, c / bytes_per_second, is not hidden by backward: the sum is minimal at c =
// sqrt(gradient_bytes * latency * bytes_per_second). At least 0.25, at most 25, which is the default. Pure.
double ChooseBucketCapMb(int64_t gradient_bytes, const AllReduceSpeed& speed);

// InvalidArgument names the invalid option or combination: a cap that is not positive, a layout that does not contain
// each of the `parameters` indices exactly once.
absl::Status CheckDdpOptions(const DdpOptions& options, size_t parameters);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_DDP_BUCKET_POLICY_H_
