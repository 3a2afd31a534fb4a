#include "launcher/config/hang_policy.h"

#include <gtest/gtest.h>

namespace ddprun::launcher {
namespace {

TEST(ParseHangPolicy, ActionAlone_TheLimitIsLearned) {
  EXPECT_EQ(*ParseHangPolicy("report"), HangPolicy());
  EXPECT_EQ(*ParseHangPolicy("restart"), HangPolicy{.restart = true});
}

TEST(ParseHangPolicy, ActionWithSeconds_TheLimitIsFixed) {
  EXPECT_EQ(*ParseHangPolicy("report:90"), HangPolicy{.fixed_limit = absl::Seconds(90)});
  EXPECT_EQ(*ParseHangPolicy("restart:0.5"), (HangPolicy{.fixed_limit = absl::Milliseconds(500), .restart = true}));
}

TEST(ParseHangPolicy, ZeroSeconds_NothingIsWatched) {
  EXPECT_FALSE(ParseHangPolicy("report:0")->watch);
  EXPECT_FALSE(ParseHangPolicy("restart:0.0")->watch);
}

TEST(ParseHangPolicy, AnythingElse_IsRefused) {
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
