#include "launcher/store/parent_pid.h"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <unistd.h>

namespace ddprun::launcher {
namespace {

TEST(ParentPid, OwnProcess_IsGetppid) { EXPECT_EQ(ParentPid(getpid()), static_cast<uint32_t>(getppid())); }

TEST(ParentPid, NameWithBlanksAndBrackets_StillRead) {
  ASSERT_EQ(prctl(PR_SET_NAME, "a) S 1 (b"), 0);
  EXPECT_EQ(ParentPid(getpid()), static_cast<uint32_t>(getppid()));
}

TEST(ParentPid, NoSuchProcess_Zero) {
  EXPECT_EQ(ParentPid(0), 0u);
  EXPECT_EQ(ParentPid(4294967295u), 0u);
}

}  // namespace
}  // namespace ddprun::launcher
