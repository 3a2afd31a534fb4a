#include "launcher/config/output_settings.h"

#include <gtest/gtest.h>

namespace ddprun::launcher {
namespace {

using Texts = std::vector<std::string>;

TEST(ParseRankFilter, List_HasLocalRanks) {
  EXPECT_EQ(*ParseRankFilter("0"), (RankFilter{{0}, false}));
  EXPECT_EQ(*ParseRankFilter("12,0, 3,0"), (RankFilter{{0, 3, 12}, false}));
  EXPECT_TRUE(ParseRankFilter("1")->Shows(/*local_rank=*/1, /*rank=*/9));
  EXPECT_FALSE(ParseRankFilter("1")->Shows(0, 1));
}

TEST(ParseRankFilter, Global_HasRanksOfTheJob) {
  const RankFilter filter = *ParseRankFilter("global:9,100000");
  EXPECT_EQ(filter, (RankFilter{{9, 100000}, true}));
  EXPECT_TRUE(filter.Shows(/*local_rank=*/1, /*rank=*/9));
  EXPECT_FALSE(filter.Shows(9, 1));
  EXPECT_EQ(filter.ToString(), "global:9,100000");
  EXPECT_TRUE(RankFilter().Shows(0, 0)) << "all, if none is named";
}

TEST(ParseRankFilter, InvalidText_ErrorShowsTheForm) {
  for (const char* text : {"", ",", "0,", "one", "-1", "0-3", "1.5", "99999999999", "5000",
                           "global:", "global:99999999999", "global:0,global:1", "Global:0", "rank:0"}) {
    const absl::Status status = ParseRankFilter(text).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << text;
    EXPECT_NE(status.message().find("is not a list of local ranks such as 0,1"), absl::string_view::npos) << status;
  }
}

TEST(ParseLineFilters, TwoCommas_AreALiteralComma) {
  const std::pair<const char*, Texts> kCases[] = {
      {"apple", {"apple"}}, {"apple,a pear", {"apple", "a pear"}}, {"a,,b,c", {"a,b", "c"}}, {",,,", {","}}, {"", {}},
      {"a,", {"a"}}};
  for (const auto& [text, filters] : kCases) EXPECT_EQ(ParseLineFilters(text), filters) << text;
}

constexpr StdStreams kNone{false, false}, kOut{true, false}, kErr{false, true}, kBoth{true, true};

TEST(ParseStreamChoice, OneDigit_AppliesToAllRanks) {
  EXPECT_EQ(ParseStreamChoice("0")->For(5), kNone);
  EXPECT_EQ(ParseStreamChoice("1")->For(5), kOut);
  EXPECT_EQ(ParseStreamChoice("2")->For(0), kErr);
  EXPECT_EQ(ParseStreamChoice("3")->For(123), kBoth);
  EXPECT_FALSE(ParseStreamChoice("0")->any());
  EXPECT_TRUE(ParseStreamChoice("2")->any());
  EXPECT_EQ(ParseStreamChoice("3")->MaxNamedRank(), -1);
  EXPECT_EQ(kOut | kErr, kBoth);
  EXPECT_EQ(kNone | kErr, kErr);
}

TEST(ParseStreamChoice, Map_AppliesToTheNamedRanks) {
  const absl::StatusOr<StreamChoice> choice = ParseStreamChoice("0:1,12:3,3:0");
  ASSERT_TRUE(choice.ok()) << choice.status();
  const std::pair<int, StdStreams> kExpected[] = {{0, kOut}, {12, kBoth}, {3, kNone}, {1, kNone}};
  for (const auto& [rank, streams] : kExpected) EXPECT_EQ(choice->For(rank), streams) << rank;
  EXPECT_EQ(choice->MaxNamedRank(), 12);
  EXPECT_TRUE(choice->any());
  EXPECT_FALSE(ParseStreamChoice("0:0")->any());
}

TEST(ParseStreamChoice, InvalidText_IsAnError) {
  for (const char* bad : {"", "4", "-1", "00", "x", "0:", ":1", "0:4", "0:1,", ",0:1", "0:1,0:2", "0:1;1:2", "a:1",
                          "0:1,2", "-1:1", "0:1 ,1:2", "10000:1", "1:2:3", "0=1"}) {
    const absl::StatusOr<StreamChoice> choice = ParseStreamChoice(bad);
    ASSERT_FALSE(choice.ok()) << bad;
    EXPECT_EQ(choice.status().message().find('\n'), absl::string_view::npos);
  }
}

const LinePrefixValues kValues{"trainer", 3, 11, "node-b"};

TEST(ExpandLinePrefix, EveryMacro_IsExpandedWithAndWithoutBraces) {
  EXPECT_EQ(ExpandLinePrefix(kDefaultLinePrefix, kValues), "[trainer3]:") << "as torchrun's";
  EXPECT_EQ(ExpandLinePrefix("${hostname} ${rank} ${local_rank} ${role_name}|", kValues), "node-b 11 3 trainer|");
  EXPECT_EQ(ExpandLinePrefix("$hostname/$rank.$local_rank:$role_name", kValues), "node-b/11.3:trainer");
  EXPECT_EQ(ExpandLinePrefix("$time ${time} $rank", kValues), "${time} ${time} 11") << "for each line";
}

TEST(ExpandLinePrefix, OtherText_IsUnchangedAsInPython) {
  for (const char* text :
       {"", "plain", "$", "${", "${}", "$ {rank}", "${rank", "$ranks", "${other}", "$other!", "{rank}"})
    EXPECT_EQ(ExpandLinePrefix(text, kValues), text);
  EXPECT_EQ(ExpandLinePrefix("$$rank $$$rank", kValues), "$rank $11");
}

}  // namespace
}  // namespace ddprun::launcher
