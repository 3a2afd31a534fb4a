#include "launcher/config/flag_value.h"

#include <gtest/gtest.h>

namespace ddprun::launcher {
namespace {

TEST(ParseInteger, InRange_IsRead) {
  EXPECT_EQ(*ParseInteger("0", 0, 10), 0);
  EXPECT_EQ(*ParseInteger("10", 0, 10), 10);
  EXPECT_EQ(*ParseInteger("-3", -5, 5), -3);
}

TEST(ParseInteger, AnythingElse_NamesTheRange) {
  for (const char* bad : {"", " 1", "1 ", "11", "-1", "x", "1x", "0x1", "1.0", "99999999999999999999", "1\n"}) {
    const absl::StatusOr<int64_t> number = ParseInteger(bad, 0, 10);
    ASSERT_FALSE(number.ok()) << bad;
    EXPECT_NE(number.status().message().find("is not a whole number from 0 to 10"), absl::string_view::npos);
  }
}

TEST(ParseSeconds, Numbers_AreRead) {
  EXPECT_EQ(*ParseSeconds("0"), absl::ZeroDuration());
  EXPECT_EQ(*ParseSeconds("30"), absl::Seconds(30));
  EXPECT_EQ(*ParseSeconds("0.5"), absl::Milliseconds(500));
  EXPECT_EQ(*ParseSeconds(".25"), absl::Milliseconds(250));
  EXPECT_EQ(*ParseSeconds("0.33333333333"), absl::Nanoseconds(333'333'333));
}

TEST(ParseSeconds, AnythingElse_IsRefused) {
  for (const char* bad : {"", ".", "1e3", "inf", "nan", "10s", "1,5", " 1", "0x10", "1.2.3", "--1"}) {
    EXPECT_FALSE(ParseSeconds(bad).ok()) << bad;
  }
  EXPECT_NE(ParseSeconds("-1").status().message().find("negative"), absl::string_view::npos);
  EXPECT_NE(ParseSeconds("1000000000000").status().message().find("too long"), absl::string_view::npos);
}

TEST(ParsePositiveSeconds, Zero_IsRefused) {
  EXPECT_FALSE(ParsePositiveSeconds("0").ok());
  EXPECT_FALSE(ParsePositiveSeconds("0.0").ok());
  EXPECT_EQ(*ParsePositiveSeconds("0.001"), absl::Milliseconds(1));
}

TEST(ParseBool, Words_AreRead) {
  for (const char* yes : {"1", "true", "True", "TRUE", "t", "yes", "y"}) EXPECT_TRUE(*ParseBool(yes)) << yes;
  for (const char* no : {"0", "false", "False", "f", "no", "N"}) EXPECT_FALSE(*ParseBool(no)) << no;
  for (const char* bad : {"", "2", "on", "truth", " 1"}) EXPECT_FALSE(ParseBool(bad).ok()) << bad;
}

TEST(ParseName, OddNames_AreRefused) {
  EXPECT_EQ(*ParseName("job 7/ü"), "job 7/ü");
  EXPECT_EQ(*ParseName(std::string(256, 'x')), std::string(256, 'x'));
  for (const std::string& bad : {std::string(), std::string(257, 'x'), std::string("a\nb"), std::string("a\xff"),
                                 std::string(" a"), std::string("a\0b", 3)}) {
    EXPECT_FALSE(ParseName(bad).ok()) << bad;
  }
}

}  // namespace
}  // namespace ddprun::launcher
