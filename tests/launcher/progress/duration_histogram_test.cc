#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "launcher/progress/progress_watch.h"

namespace ddprun::launcher {
namespace {

TEST(DurationHistogramTest, Empty_IsZero) { EXPECT_EQ(DurationHistogram().Percentile(0.99), absl::ZeroDuration()); }

TEST(DurationHistogramTest, Percentile_IsTheExactOneUpToAnEighth) {
  std::mt19937 random(7);
  std::lognormal_distribution<double> seconds(-2, 1.5);
  DurationHistogram histogram;
  std::vector<double> sorted;
  for (int i = 0; i < 5000; ++i) {
    sorted.push_back(std::max(0.001, seconds(random)));
    histogram.Add(absl::Seconds(sorted.back()));
  }
  std::sort(sorted.begin(), sorted.end());
  DurationHistogram few;
  for (int i = 0; i < 98; ++i) few.Add(absl::Milliseconds(10));
  few.Add(absl::Seconds(5));
  EXPECT_GE(few.Percentile(0.99), absl::Seconds(5));
  for (const double share : {0.01, 0.5, 0.9, 0.99, 1.0}) {
    const double exact = sorted[static_cast<size_t>(std::ceil(share * sorted.size())) - 1];
    const double found = absl::ToDoubleSeconds(histogram.Percentile(share));
    EXPECT_GE(found, exact * 0.999) << share;
    EXPECT_LE(found, exact * 1.126) << share;
  }
}

TEST(DurationHistogramTest, Extremes_AreCounted) {
  DurationHistogram histogram;
  histogram.Add(-absl::Seconds(1));
  EXPECT_EQ(histogram.Largest(), absl::Milliseconds(1));
  histogram.Add(absl::InfiniteDuration());
  EXPECT_EQ(histogram.count(), 2);
  EXPECT_GT(histogram.Largest(), absl::Hours(7 * 24));
}

TEST(DurationHistogramTest, OldDurations_FadeUnlessTheyRecur) {
  DurationHistogram histogram;
  histogram.Add(absl::Minutes(10));
  for (int64_t i = 0; i < DurationHistogram::kFadeAt; ++i) {
    histogram.Add(i % 1000 == 0 ? absl::Seconds(20) : absl::Milliseconds(100));
  }
  EXPECT_LT(histogram.Largest(), absl::Seconds(23));
  EXPECT_GE(histogram.Largest(), absl::Seconds(20));
}

}  // namespace
}  // namespace ddprun::launcher
