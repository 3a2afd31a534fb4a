#include "rendezvous/core/natural_order.h"

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "gtest/gtest.h"

namespace ddprun::rendezvous {
namespace {

TEST(NaturalCompareTest, NaturalCompare_Digits_CompareAsNumbers) {
  const std::vector<std::string> sorted = absl::StrSplit(
      " 1 02 10 a a1b2 a1b10 node node- node7 node66 node066b node100 node100-ib node18446744073709551616 "
      "node99999999999999999999999",
      ' ');
  for (size_t i = 0; i < sorted.size(); ++i) {
    for (size_t j = 0; j < sorted.size(); ++j) {
      const int c = NaturalCompare(sorted[i], sorted[j]);
      EXPECT_EQ(c < 0, i < j) << sorted[i] << " and " << sorted[j];
      EXPECT_EQ(c == 0, i == j) << sorted[i] << " and " << sorted[j];
    }
  }
}

TEST(NaturalCompareTest, NaturalCompare_LeadingZeros_Differ) {
  EXPECT_NE(NaturalCompare("a01", "a1"), 0);
  EXPECT_EQ(NaturalCompare("a01", "a1") < 0, NaturalCompare("a1", "a01") > 0);
  EXPECT_LT(NaturalCompare("a01", "a2"), 0);
  EXPECT_LT(NaturalCompare("a01b", "a1c"), 0);
  EXPECT_EQ(NaturalCompare("a00", "a00"), 0);
}

TEST(NaturalCompareTest, BytesAboveAscii_ComeLast) { EXPECT_LT(NaturalCompare("z", "\xc3\xa4"), 0); }

TEST(NaturalCompareTest, RandomNames_AreTotallyOrdered) {
  std::mt19937 random(7);
  std::vector<std::string> names;
  for (int i = 0; i < 120; ++i) {
    std::string name;
    for (int length = random() % 6; length > 0; --length) name += "ab019-"[random() % 6];
    names.push_back(name);
  }
  for (const auto& a : names) {
    for (const auto& b : names) {
      EXPECT_EQ(NaturalCompare(a, b) < 0, NaturalCompare(b, a) > 0) << a << " " << b;
      EXPECT_EQ(NaturalCompare(a, b) == 0, a == b) << a << " " << b;
      for (const auto& c : names) {
        if (NaturalCompare(a, b) < 0 && NaturalCompare(b, c) < 0) {
          ASSERT_LT(NaturalCompare(a, c), 0) << a << " " << b << " " << c;
        }
      }
    }
  }
}

}  // namespace
}  // namespace ddprun::rendezvous
