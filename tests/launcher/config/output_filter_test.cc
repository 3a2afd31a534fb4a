#include "launcher/config/output_filter.h"

#include <gtest/gtest.h>

namespace ddprun::launcher {
namespace {

using Texts = std::vector<std::string>;

TEST(ParseLocalRanks, List_IsASet) {
  EXPECT_EQ(*ParseLocalRanks("0"), std::set<int32_t>{0});
  EXPECT_EQ(*ParseLocalRanks("12,0, 3,0"), (std::set<int32_t>{0, 3, 12}));
}

TEST(ParseLocalRanks, WhatIsNone_IsNamed) {
  for (const char* text : {"", ",", "0,", "one", "-1", "0-3", "1.5", "99999999999"}) {
    const absl::Status status = ParseLocalRanks(text).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << text;
    EXPECT_NE(status.message().find("is not a list of local ranks such as 0,1"), absl::string_view::npos) << status;
  }
}

TEST(ParseLineFilters, Commas_SeparateAndTwoAreOne) {
  EXPECT_EQ(ParseLineFilters("apple"), Texts{"apple"});
  EXPECT_EQ(ParseLineFilters("apple,a pear"), (Texts{"apple", "a pear"}));
  EXPECT_EQ(ParseLineFilters("a,,b,c"), (Texts{"a,b", "c"}));
  EXPECT_EQ(ParseLineFilters(",,,"), Texts{","});
  EXPECT_EQ(ParseLineFilters(""), Texts{});
  EXPECT_EQ(ParseLineFilters("a,"), Texts{"a"});
}

}  // namespace
}  // namespace ddprun::launcher
