#include "launcher/config/port_range.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/match.h"

namespace ddprun::launcher {
namespace {

TEST(ParsePortRange, BothForms_AreRead) {
  EXPECT_EQ(*ParsePortRange("20000-20100"), (PortRange{20000, 20100}));
  EXPECT_EQ(*ParsePortRange("20000:20100"), (PortRange{20000, 20100}));
  EXPECT_EQ(*ParsePortRange("1-65535"), PortRange());
  EXPECT_EQ(*ParsePortRange("7-7"), (PortRange{7, 7}));
  EXPECT_EQ((PortRange{20000, 20100}.ToString()), "20000-20100");
}

TEST(ParsePortRange, BothEndsAreInside) {
  const PortRange range{10, 12};
  EXPECT_FALSE(range.Has(9));
  EXPECT_TRUE(range.Has(10));
  EXPECT_TRUE(range.Has(12));
  EXPECT_FALSE(range.Has(13));
}

TEST(ParsePortRange, OtherText_IsAnErrorThatShowsTheForm) {
  for (const char* text : {"", "20000", "-", "1-", "-2", "1-2-3", "a-b", "0-5", "1-65536", "1 - 2", "1,2", "--1"}) {
    const absl::Status status = ParsePortRange(text).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << text;
    EXPECT_TRUE(absl::StrContains(status.message(), "FIRST-LAST")) << status;
  }
  EXPECT_TRUE(absl::StrContains(ParsePortRange("9-8").status().message(), "smaller port first"));
}

}  // namespace
}  // namespace ddprun::launcher
