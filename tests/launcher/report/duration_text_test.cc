#include "launcher/report/duration_text.h"

#include <gtest/gtest.h>

namespace ddprun::launcher {
namespace {

TEST(RemainingText, WholeSeconds_RoundedUp) {
  EXPECT_EQ(RemainingText(absl::Minutes(10) - absl::Milliseconds(1500)), "9m59s");
  EXPECT_EQ(RemainingText(absl::Seconds(598)), "9m58s");
  EXPECT_EQ(RemainingText(absl::Milliseconds(1)), "1s");
  EXPECT_EQ(RemainingText(absl::ZeroDuration()), "0s");
  EXPECT_EQ(RemainingText(-absl::Seconds(3)), "0s");
  EXPECT_EQ(RemainingText(absl::Hours(2) + absl::Seconds(5)), "2h0m5s");
  EXPECT_EQ(RemainingText(absl::InfiniteDuration()), "forever");
}

TEST(ElapsedText, Precision_FitsTheLength) {
  EXPECT_EQ(ElapsedText(absl::ZeroDuration()), "0ms");
  EXPECT_EQ(ElapsedText(absl::Microseconds(350999)), "350ms");
  EXPECT_EQ(ElapsedText(absl::Milliseconds(12399)), "12.3s");
  EXPECT_EQ(ElapsedText(absl::Milliseconds(59999)), "59.9s");
  EXPECT_EQ(ElapsedText(absl::Seconds(65)), "1m5s");
  EXPECT_EQ(ElapsedText(absl::Hours(25) + absl::Seconds(1)), "25h0m1s");
  EXPECT_EQ(ElapsedText(-absl::Seconds(1)), "0ms");
}

}  // namespace
}  // namespace ddprun::launcher
