#include "launcher/cluster/task_counts.h"

#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"

namespace ddprun::launcher {
namespace {

TEST(ExpandTaskCounts, EveryForm_IsExpanded) {
  const struct {
    const char* text;
    const char* expected;
  } kCases[] = {{"1", "1"},           {"1(x2)", "1 1"},       {"4,8", "4 8"},
                {"2,1(x2)", "2 1 1"}, {"2(x3),1", "2 2 2 1"}, {"34,26,2(x2)", "34 26 2 2"},
                {"128(x1)", "128"}};
  for (const auto& c : kCases) {
    const auto counts = ExpandTaskCounts(c.text);
    ASSERT_TRUE(counts.ok()) << c.text << ": " << counts.status();
    EXPECT_EQ(absl::StrJoin(*counts, " "), c.expected);
  }
  EXPECT_EQ(ExpandTaskCounts("8(x100000)")->size(), 100'000u);
}

TEST(ExpandTaskCounts, Malformed_IsRefusedInOneLine) {
  for (const char* bad : {"", ",", "1,", "x", "0", "-1", "1(x0)", "1(x)", "1(x2", "1x2)", "1(2)", "(x2)", "1(x2)3",
                          "1 (x2)", "1(x100001)", "1(x60000),1(x60000)", "99999999999999999999", "1\n"}) {
    const auto counts = ExpandTaskCounts(bad);
    ASSERT_EQ(counts.status().code(), absl::StatusCode::kInvalidArgument) << bad;
    EXPECT_FALSE(absl::StrContains(counts.status().message(), '\n')) << bad;
    EXPECT_TRUE(absl::StrContains(counts.status().message(), "is not a list of counts such as 2(x3),1: "))
        << counts.status();
  }
}

}  // namespace
}  // namespace ddprun::launcher
