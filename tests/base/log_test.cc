#include "base/log.h"

#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/time/time.h"

namespace ddprun {
namespace {

const absl::Time kTime = absl::FromUnixMillis(1'792'632'600'123);

TEST(LogTest, FormatLogLine_NoTerminal_HasTimeLevelAndHost_TerminalIsShort) {
  const auto line = [](bool terminal, LogLevel level) {
    return FormatLogLine(terminal, "ddprun", "node-a", level, kTime, "text");
  };
  EXPECT_EQ(line(false, LogLevel::kInfo), "2026-10-22T01:30:00.123Z INFO node-a ddprun: text\n");
  EXPECT_EQ(line(false, LogLevel::kWarning), "2026-10-22T01:30:00.123Z WARNING node-a ddprun: text\n");
  EXPECT_EQ(line(true, LogLevel::kInfo), "ddprun: text\n");
  EXPECT_EQ(line(true, LogLevel::kWarning), "ddprun: warning: text\n");
  EXPECT_EQ(line(true, LogLevel::kError), "ddprun: error: text\n");
}

TEST(LogTest, FormatLogLine_ForeignText_CanNotMakeUpLinesOrMoveTheCursor) {
  EXPECT_EQ(FormatLogLine(true, "ddprun", "", LogLevel::kInfo, kTime,
                          "a\nddprun: forged\r\x1b[2J\t\x7f\xff\xc2\x9b"
                          "ü"),
            "ddprun: a\\nddprun: forged\\r\\x1b[2J\\t\\x7f\\xff\\xc2\\x9bü\n");
}

TEST(LogTest, Log_LinesAndVerbatimTextKeepTheirOrderWithAndWithoutTheThread) {
  ::testing::internal::CaptureStderr();
  Log(LogLevel::kInfo, "below the level");
  Log(LogLevel::kError, "one");
  LogVerbatim("two\n");
  StartLogThread();
  Log(LogLevel::kError, "three");
  LogVerbatim("four\n");
  Log(LogLevel::kWarning, "five");
  EXPECT_TRUE(FlushLog(SteadyNow() + absl::Seconds(60)));
  const std::string log = ::testing::internal::GetCapturedStderr();
  size_t at = 0;
  for (const char* text : {"ddprun: one\n", "two\n", "ddprun: three\n", "four\n", "ddprun: five\n"}) {
    at = log.find(text, at);
    EXPECT_NE(at, std::string::npos) << text << " is missing in " << log;
  }
  EXPECT_FALSE(absl::StrContains(log, "below")) << log;
}

}  // namespace
}  // namespace ddprun
