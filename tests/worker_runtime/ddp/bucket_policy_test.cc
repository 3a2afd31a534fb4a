#include "worker_runtime/ddp/bucket_policy.h"

#include <gtest/gtest.h>

#include <limits>

namespace ddprun {
namespace {

constexpr size_t kUnlimited = std::numeric_limits<int64_t>::max();
constexpr int64_t kMiB = 1 << 20;

TEST(ChooseBucketLimitsTest, Default_OneBucketFirst_ThenOneAndTwentyFiveMiB) {
  const BucketLimits limits = ChooseBucketLimits({});
  EXPECT_EQ(limits.initial, std::vector<size_t>{kUnlimited});
  EXPECT_EQ(limits.first_bytes, kMiB);
  EXPECT_EQ(limits.cap_bytes, 25 * kMiB);
}

TEST(ChooseBucketLimitsTest, ExplicitCap_IsTheFirstBucketsToo) {
  const BucketLimits limits = ChooseBucketLimits({.bucket_cap_mb = 25});
  EXPECT_EQ(limits.first_bytes, 25 * kMiB);
  EXPECT_EQ(limits.cap_bytes, 25 * kMiB);
  EXPECT_EQ(ChooseBucketLimits({.bucket_cap_mb = 0.1}).cap_bytes, 104857);
}

TEST(ChooseBucketLimitsTest, FindUnused_BucketsFromTheBeginning) {
  EXPECT_EQ(ChooseBucketLimits({.find_unused_parameters = true}).initial, (std::vector<size_t>{1 << 20, 25 << 20}));
  EXPECT_EQ(ChooseBucketLimits({.bucket_cap_mb = 2, .find_unused_parameters = true}).initial,
            std::vector<size_t>{2 << 20});
}

TEST(ChooseBucketLimitsTest, StaticGraph_OneBucketEvenWithFindUnused) {
  EXPECT_EQ(ChooseBucketLimits({.find_unused_parameters = true, .static_graph = true}).initial,
            std::vector<size_t>{kUnlimited});
}

TEST(CheckDdpOptionsTest, BadCap_IsNamed) {
  EXPECT_TRUE(CheckDdpOptions({}, 3).ok());
  EXPECT_TRUE(CheckDdpOptions({.bucket_cap_mb = 0.01}, 3).ok());
  EXPECT_EQ(CheckDdpOptions({.bucket_cap_mb = 0}, 3).message(),
            "bucket_cap_mb is 0, but must be positive and finite (MiB)");
  EXPECT_FALSE(CheckDdpOptions({.bucket_cap_mb = std::numeric_limits<double>::quiet_NaN()}, 3).ok());
  EXPECT_FALSE(CheckDdpOptions({.bucket_cap_mb = std::numeric_limits<double>::infinity()}, 3).ok());
}

TEST(CheckDdpOptionsTest, Layout_HoldsEachParameterOnce) {
  const auto check = [](BucketLayout layout) { return CheckDdpOptions({.initial_bucket_layout = layout}, 3); };
  EXPECT_TRUE(check({{2}, {0, 1}}).ok());
  EXPECT_EQ(check({{2}, {0}}).message(),
            "initial_bucket_layout has 2 of 3 parameters; pass the layout of the same model");
  EXPECT_EQ(check({{2, 0}, {0, 1}}).message(), "initial_bucket_layout names parameter 0 twice");
  EXPECT_EQ(
      check({{3, 0, 1}}).message(),
      "initial_bucket_layout names parameter 3, but the module has 3 that require a gradient; pass the layout of the "
      "same model");
  EXPECT_EQ(check({{0, 1, 2}, {}}).message(), "initial_bucket_layout has an empty bucket");
}

}  // namespace
}  // namespace ddprun
