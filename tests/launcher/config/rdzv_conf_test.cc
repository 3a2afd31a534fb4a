#include "launcher/config/rdzv_conf.h"

#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"

namespace ddprun::launcher {
namespace {

TEST(ParseRdzvConf, Empty_GivesTheDefaults) {
  EXPECT_EQ(*ParseRdzvConf(""), RdzvConf());
  EXPECT_EQ(*ParseRdzvConf("  "), RdzvConf());
  EXPECT_EQ(*ParseRdzvConf("''"), RdzvConf());
}

TEST(ParseRdzvConf, EveryKey_IsRead) {
  const absl::StatusOr<RdzvConf> conf = ParseRdzvConf(
      "join_timeout=60,last_call_timeout=0,heartbeat_timeout=1.5, reconnect_timeout = 7 ,reconnect_grace=0.2,"
      "restart_window=3600,restart_backoff=0.5,max_failures_at_step=0,node_cooldown=90,"
      "is_host=true,rank=3,store_type=tcp,use_libuv=0,close_timeout=30,read_timeout=60,"
      "cas_backoff_max_seconds=0.5");
  ASSERT_TRUE(conf.ok()) << conf.status();
  RdzvConf expected;
  *expected.job.mutable_join_timeout() = FromDuration(absl::Seconds(60));
  *expected.job.mutable_last_call() = FromDuration(absl::ZeroDuration());
  expected.heartbeat_timeout = absl::Milliseconds(1500);
  expected.reconnect_timeout = absl::Seconds(7);
  *expected.job.mutable_reconnect_grace() = FromDuration(absl::Milliseconds(200));
  *expected.job.mutable_restart_window() = FromDuration(absl::Hours(1));
  *expected.job.mutable_restart_backoff() = FromDuration(absl::Milliseconds(500));
  expected.job.set_max_failures_at_step(0);
  *expected.job.mutable_node_cooldown() = FromDuration(absl::Seconds(90));
  expected.is_host = true;
  expected.rank = 3;
  EXPECT_EQ(*conf, expected);
}

TEST(ParseRdzvConf, Timeout_IsJoinTimeoutUnlessThatIsGiven) {
  EXPECT_EQ(ToDuration(ParseRdzvConf("timeout=900")->job.join_timeout()), absl::Seconds(900));
  EXPECT_EQ(ToDuration(ParseRdzvConf("timeout=900,join_timeout=5")->job.join_timeout()), absl::Seconds(5));
  EXPECT_EQ(ToDuration(ParseRdzvConf("join_timeout=5,timeout=900")->job.join_timeout()), absl::Seconds(5));
}

TEST(ParseRdzvConf, KeepAlive_SetsTheHeartbeatTimeout) {
  EXPECT_EQ(ParseRdzvConf("keep_alive_interval=2")->heartbeat_timeout, absl::Seconds(6));
  EXPECT_EQ(ParseRdzvConf("keep_alive_max_attempt=2")->heartbeat_timeout, absl::Seconds(10));
  EXPECT_EQ(ParseRdzvConf("keep_alive_interval=2,keep_alive_max_attempt=4")->heartbeat_timeout, absl::Seconds(8));
  EXPECT_EQ(ParseRdzvConf("heartbeat_timeout=1,keep_alive_interval=2")->heartbeat_timeout, absl::Seconds(1));
}

TEST(ParseRdzvConf, UnknownKey_ListsTheKnownOnes) {
  const absl::Status status = ParseRdzvConf("join_timeuot=5").status();
  for (const char* word : {"'join_timeuot'",
                           "join_timeout",
                           "timeout",
                           "last_call_timeout",
                           "heartbeat_timeout",
                           "keep_alive_interval",
                           "keep_alive_max_attempt",
                           "reconnect_timeout",
                           "reconnect_grace",
                           "restart_window",
                           "restart_backoff",
                           "max_failures_at_step",
                           "node_cooldown",
                           "is_host",
                           "rank",
                           "store_type",
                           "use_libuv",
                           "close_timeout",
                           "read_timeout",
                           "cas_backoff_max_seconds"})
    EXPECT_TRUE(absl::StrContains(status.message(), word)) << word << ": " << status;
}

TEST(ParseRdzvConf, InvalidText_IsAnError) {
  const char kBad[] =
      "join_timeout join_timeout= join_timeout=0 join_timeout=-1 join_timeout=1m join_timeout==5 \"join_timeout=5 "
      "=5 , join_timeout=5, join_timeout=5,,rank=1 join_timeout=5,join_timeout=6 JOIN_TIMEOUT=5 protocol=http "
      "last_call_timeout=-0.5 is_host=maybe rank=-1 rank=x store_type=file use_libuv=2 heartbeat_timeout=0 "
      "heartbeat_timeout=0.01 keep_alive_max_attempt=0 keep_alive_max_attempt=1.5 "
      "keep_alive_interval=0.01,keep_alive_max_attempt=1 restart_window=-1 restart_backoff=1h "
      "max_failures_at_step=-1 max_failures_at_step=1.5 node_cooldown=";
  for (const absl::string_view bad : absl::StrSplit(kBad, ' ')) {
    const absl::StatusOr<RdzvConf> conf = ParseRdzvConf(bad);
    ASSERT_FALSE(conf.ok()) << bad;
    EXPECT_EQ(conf.status().message().find('\n'), absl::string_view::npos);
  }
}

}  // namespace
}  // namespace ddprun::launcher
