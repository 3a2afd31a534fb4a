#include "launcher/os/process_end.h"

#include <csignal>

#include "gtest/gtest.h"

namespace ddprun::launcher {
namespace {

TEST(ProcessEndTest, Exited_SaysItsCode) {
  const ProcessEnd end = ProcessEnd::FromWait(12, 7 << 8);
  EXPECT_EQ(end.pid, 12);
  EXPECT_EQ(end.Text(), "exited with code 7");
  EXPECT_EQ(end.ExitCode(), 7);
  EXPECT_FALSE(end.ok());
  EXPECT_TRUE(ProcessEnd::FromWait(12, 0).ok());
}

TEST(ProcessEndTest, Signaled_SaysNameAndNumber) {
  const ProcessEnd end = ProcessEnd::FromWait(12, SIGKILL);
  EXPECT_EQ(end.Text(), "killed by SIGKILL (9)");
  EXPECT_EQ(end.ExitCode(), 137);
  EXPECT_FALSE(end.ok());
}

TEST(ProcessEndTest, CoreDumped_TheSignalCounts) {
  EXPECT_EQ(ProcessEnd::FromWait(12, SIGSEGV | 0x80).Text(), "killed by SIGSEGV (11)");
}

}  // namespace
}  // namespace ddprun::launcher
