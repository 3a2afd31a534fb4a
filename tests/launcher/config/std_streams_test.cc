#include "launcher/config/std_streams.h"

#include <gtest/gtest.h>

namespace ddprun::launcher {
namespace {

constexpr StdStreams kNone{false, false};
constexpr StdStreams kOut{true, false};
constexpr StdStreams kErr{false, true};
constexpr StdStreams kBoth{true, true};

TEST(ParseStreamChoice, OneDigit_HoldsForAllRanks) {
  EXPECT_EQ(ParseStreamChoice("0")->For(5), kNone);
  EXPECT_EQ(ParseStreamChoice("1")->For(5), kOut);
  EXPECT_EQ(ParseStreamChoice("2")->For(0), kErr);
  EXPECT_EQ(ParseStreamChoice("3")->For(123), kBoth);
  EXPECT_FALSE(ParseStreamChoice("0")->any());
  EXPECT_TRUE(ParseStreamChoice("2")->any());
  EXPECT_EQ(ParseStreamChoice("3")->MaxNamedRank(), -1);
}

TEST(ParseStreamChoice, Map_HoldsForTheNamedRanks) {
  const absl::StatusOr<StreamChoice> choice = ParseStreamChoice("0:1,12:3,3:0");
  ASSERT_TRUE(choice.ok()) << choice.status();
  EXPECT_EQ(choice->For(0), kOut);
  EXPECT_EQ(choice->For(12), kBoth);
  EXPECT_EQ(choice->For(3), kNone);
  EXPECT_EQ(choice->For(1), kNone);
  EXPECT_EQ(choice->MaxNamedRank(), 12);
  EXPECT_TRUE(choice->any());
  EXPECT_FALSE(ParseStreamChoice("0:0")->any());
}

TEST(ParseStreamChoice, AnythingElse_IsRefused) {
  for (const char* bad : {"", "4", "-1", "00", "x", "0:", ":1", "0:4", "0:1,", ",0:1", "0:1,0:2", "0:1;1:2", "a:1",
                          "0:1,2", "-1:1", "0:1 ,1:2", "10000:1", "1:2:3", "0=1"}) {
    const absl::StatusOr<StreamChoice> choice = ParseStreamChoice(bad);
    ASSERT_FALSE(choice.ok()) << bad;
    EXPECT_EQ(choice.status().message().find('\n'), absl::string_view::npos);
  }
}

TEST(StdStreams, Or_Unites) {
  EXPECT_EQ(kOut | kErr, kBoth);
  EXPECT_EQ(kNone | kErr, kErr);
}

}  // namespace
}  // namespace ddprun::launcher
