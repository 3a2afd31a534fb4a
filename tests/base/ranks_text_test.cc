#include "base/ranks_text.h"

#include <gtest/gtest.h>

namespace ddprun {
namespace {

TEST(RangesText, Lists_AreCompacted) {
  EXPECT_EQ(RangesText({}), "");
  EXPECT_EQ(RangesText({4}), "4");
  EXPECT_EQ(RangesText({2, 1, 0, 1}), "0-2");
  EXPECT_EQ(RangesText({9, 0, 1, 2, 5, 7, 8}), "0-2, 5, 7-9");
  std::vector<int32_t> even;
  for (int32_t i = 0; i < 1000; i += 2) even.push_back(i);
  EXPECT_EQ(RangesText(even), "0, 2, 4, 6, 8, 10, 12, 14, ... (500 in all)");
  even.resize(8);
  EXPECT_EQ(RangesText(even), "0, 2, 4, 6, 8, 10, 12, 14");
}

TEST(RanksText, OneOrSeveral) {
  EXPECT_EQ(RanksText({}), "no rank");
  EXPECT_EQ(RanksText({3}), "rank 3");
  EXPECT_EQ(RanksText({3, 3}), "rank 3");
  EXPECT_EQ(RanksText({0, 1, 3}, 8), "ranks 8-9, 11");
}

}  // namespace
}  // namespace ddprun
