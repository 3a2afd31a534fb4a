#include "launcher/config/hang_policy.h"

#include <gtest/gtest.h>

namespace ddprun::launcher {
namespace {

TEST(ParseHangPolicy, ActionAloneOrWithSeconds) {
  EXPECT_EQ(*ParseHangPolicy("report"), HangPolicy());
  EXPECT_EQ(*ParseHangPolicy("restart"), HangPolicy{.restart = true});
  EXPECT_EQ(*ParseHangPolicy("report:90"), HangPolicy{.fixed_limit = absl::Seconds(90)});
  EXPECT_EQ(*ParseHangPolicy("restart:0.5"), (HangPolicy{.fixed_limit = absl::Milliseconds(500), .restart = true}));
  for (const char* none : {"report:0", "restart:0.0"}) EXPECT_FALSE(ParseHangPolicy(none)->watch) << none;
  for (const char* bad : {"", "60", ":60", "log", "restart:", "restart:-1", "restart:1m", "report:1:2", "Report"}) {
    EXPECT_FALSE(ParseHangPolicy(bad).ok()) << bad;
  }
}

TEST(HangPolicyText, EveryPolicy) {
  EXPECT_EQ(HangPolicyText({}), "report");
  EXPECT_EQ(HangPolicyText(*ParseHangPolicy("restart:90")), "restart, limit 1m30s");
  EXPECT_EQ(HangPolicyText(*ParseHangPolicy("restart:0")), "none");
}

}  // namespace
}  // namespace ddprun::launcher
