#include "worker_runtime/ddp/bucket_policy.h"

#include <gtest/gtest.h>

#include <limits>

#include "absl/strings/match.h"

namespace ddprun {
namespace {

constexpr size_t kUnlimited = std::numeric_limits<int64_t>::max();
constexpr int64_t kMiB = 1 << 20;

TEST(ChooseBucketLimitsTest, ChooseBucketLimits_Default_OneBucketThen1And25MiB) {
  const BucketLimits limits = ChooseBucketLimits({});
  EXPECT_EQ(limits.initial, std::vector<size_t>{kUnlimited});
  EXPECT_EQ(limits.first_bytes, kMiB);
  EXPECT_EQ(limits.cap_bytes, 25 * kMiB);
}

TEST(ChooseBucketLimitsTest, ChooseBucketLimits_ExplicitCap_LimitsTheFirstBucketToo) {
  const BucketLimits limits = ChooseBucketLimits({.bucket_cap_mb = 25});
  EXPECT_EQ(limits.first_bytes, 25 * kMiB);
  EXPECT_EQ(limits.cap_bytes, 25 * kMiB);
  EXPECT_EQ(ChooseBucketLimits({.bucket_cap_mb = 0.1}).cap_bytes, 104857);
}

TEST(ChooseBucketLimitsTest, ChooseBucketLimits_FindUnused_UsesBucketsFromTheStart) {
  EXPECT_EQ(ChooseBucketLimits({.find_unused_parameters = true}).initial, (std::vector<size_t>{1 << 20, 25 << 20}));
  EXPECT_EQ(ChooseBucketLimits({.bucket_cap_mb = 2, .find_unused_parameters = true}).initial,
            std::vector<size_t>{2 << 20});
}

TEST(ChooseBucketLimitsTest, ChooseBucketLimits_StaticGraph_OneBucketEvenWithFindUnused) {
  EXPECT_EQ(ChooseBucketLimits({.find_unused_parameters = true, .static_graph = true}).initial,
            std::vector<size_t>{kUnlimited});
}

TEST(ChooseBucketCapMbTest, ChooseBucketCapMb_SlowAndFastLinks_BalancesLatencyAndLastBucket) {
  const auto cap = [](int64_t mib, absl::Duration latency, double mib_per_second) {
    return ChooseBucketCapMb(mib * kMiB, {latency, mib_per_second * kMiB});
  };
  EXPECT_DOUBLE_EQ(cap(16, absl::Milliseconds(10), 100), 4);
  EXPECT_DOUBLE_EQ(cap(64, absl::Milliseconds(10), 100), 8);
  EXPECT_DOUBLE_EQ(cap(16, absl::Microseconds(2500), 100), 2);
  EXPECT_DOUBLE_EQ(cap(1, absl::Microseconds(1), 100), 0.25);
  EXPECT_DOUBLE_EQ(cap(100000, absl::Milliseconds(10), 1000), 25);
  // 3.4 MB of gradients on 1 Gbit/s, where 0.5 MiB is better than 0.25 and 1 (benchmarks/README.md).
  EXPECT_NEAR(ChooseBucketCapMb(3'400'000, {absl::Microseconds(500), 1e9 / 8}), 0.44, 0.01);
}

TEST(CheckDdpOptionsTest, CheckDdpOptions_BadCap_ErrorNamesIt) {
  EXPECT_TRUE(CheckDdpOptions({}, 3).ok());
  EXPECT_TRUE(CheckDdpOptions({.bucket_cap_mb = 0.01}, 3).ok());
  EXPECT_EQ(CheckDdpOptions({.bucket_cap_mb = 0}, 3).message(),
            "bucket_cap_mb is 0, but must be positive and finite (MiB)");
  EXPECT_FALSE(CheckDdpOptions({.bucket_cap_mb = std::numeric_limits<double>::quiet_NaN()}, 3).ok());
  EXPECT_FALSE(CheckDdpOptions({.bucket_cap_mb = std::numeric_limits<double>::infinity()}, 3).ok());
}

TEST(CheckDdpOptionsTest, CheckDdpOptions_MeasuredAndSetCap_IsInvalidArgument) {
  EXPECT_TRUE(CheckDdpOptions({.measure_bucket_cap = true}, 3).ok());
  EXPECT_EQ(CheckDdpOptions({.bucket_cap_mb = 1, .measure_bucket_cap = true}, 3).message(),
            "bucket_cap_mb and measure_bucket_cap are both set; set one of them");
}

TEST(CheckDdpOptionsTest, CheckDdpOptions_LayoutWithoutAParameter_IsInvalidArgument) {
  const auto check = [](BucketLayout layout) { return CheckDdpOptions({.initial_bucket_layout = layout}, 3); };
  EXPECT_TRUE(check({{2}, {0, 1}}).ok());
  EXPECT_EQ(check({{2}, {0}}).message(),
            "initial_bucket_layout has 2 of 3 parameters; pass the layout of the same model");
  EXPECT_EQ(check({{2, 0}, {0, 1}}).message(), "initial_bucket_layout names parameter 0 twice");
  EXPECT_TRUE(
      absl::StartsWith(check({{3, 0, 1}}).message(), "initial_bucket_layout names parameter 3, but the module has 3"));
  EXPECT_EQ(check({{0, 1, 2}, {}}).message(), "initial_bucket_layout has an empty bucket");
}

}  // namespace
}  // namespace ddprun
