#include "worker_runtime/ddp/bucket_policy.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"

namespace ddprun {
namespace {

constexpr int64_t kMiB = 1024 * 1024;
constexpr int64_t kDefaultFirstBytes = kMiB;
constexpr double kDefaultCapMb = 25;
constexpr double kMaxCapMb = 1e9;
constexpr double kMinMeasuredCapMb = 0.25;

absl::Status CheckLayout(const BucketLayout& layout, size_t parameters) {
  std::vector<bool> seen(parameters, false);
  size_t count = 0;
  for (const std::vector<size_t>& bucket : layout) {
    if (bucket.empty()) return absl::InvalidArgumentError("initial_bucket_layout has an empty bucket");
    for (size_t index : bucket) {
      if (index >= parameters) {
        return absl::InvalidArgumentError(absl::StrCat("initial_bucket_layout names parameter ", index,
                                                       ", but the module has ", parameters,
                                                       " that require a gradient; pass the layout of the same model"));
      }
      if (seen[index]) {
        return absl::InvalidArgumentError(absl::StrCat("initial_bucket_layout names parameter ", index, " twice"));
      }
      seen[index] = true;
      ++count;
    }
  }
  if (count != parameters) {
    return absl::InvalidArgumentError(absl::StrCat("initial_bucket_layout has ", count, " of ", parameters,
                                                   " parameters; pass the layout of the same model"));
  }
  return absl::OkStatus();
}

}  // namespace

BucketLimits ChooseBucketLimits(const DdpOptions& options) {
  BucketLimits limits;
  limits.cap_bytes = static_cast<int64_t>(options.bucket_cap_mb.value_or(kDefaultCapMb) * kMiB);
  limits.first_bytes = options.bucket_cap_mb.has_value() ? limits.cap_bytes : kDefaultFirstBytes;
  if (options.static_graph || !options.find_unused_parameters) {
    // One bucket: the order in which gradients become ready is known only after the first backward pass. If there were
    // several, a bucket could be reduced with a different bucket of another rank.
    limits.initial = {static_cast<size_t>(std::numeric_limits<int64_t>::max())};
  } else if (options.bucket_cap_mb.has_value()) {
    limits.initial = {static_cast<size_t>(limits.cap_bytes)};
  } else {
    limits.initial = {static_cast<size_t>(limits.first_bytes), static_cast<size_t>(limits.cap_bytes)};
  }
  return limits;
}

double ChooseBucketCapMb(int64_t gradient_bytes, const AllReduceSpeed& speed) {
  const double latency = absl::ToDoubleSeconds(speed.latency);
  const double bytes = std::sqrt(static_cast<double>(gradient_bytes) * latency * speed.bytes_per_second);
  return std::clamp(bytes / kMiB, kMinMeasuredCapMb, kDefaultCapMb);
}

absl::Status CheckDdpOptions(const DdpOptions& options, size_t parameters) {
  if (options.bucket_cap_mb.has_value()) {
    const double cap = *options.bucket_cap_mb;
    if (!(cap > 0 && cap <= kMaxCapMb)) {
      return absl::InvalidArgumentError(
          absl::StrCat("bucket_cap_mb is ", cap, ", but must be positive and finite (MiB)"));
    }
  }
  if (options.bucket_cap_mb.has_value() && options.measure_bucket_cap) {
    return absl::InvalidArgumentError("bucket_cap_mb and measure_bucket_cap are both set; set one of them");
  }
  if (options.initial_bucket_layout.has_value()) return CheckLayout(*options.initial_bucket_layout, parameters);
  return absl::OkStatus();
}

}  // namespace ddprun
