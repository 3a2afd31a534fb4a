// Programs with PyTorch's own parts: the same result and environment under ddprun with and without --preload.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/e2e/launch.h"

namespace ddprun::testing {
namespace {

class QuickProgramsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (VenvPython().empty()) GTEST_SKIP() << "no .venv with torch (scripts/setup makes one)";
  }

  static void ExpectAlike(const std::string& program, bool kill = false) {
    std::vector<std::string> command = {VenvPython(), "tests/ecosystem/run.py", "--ddprun=launcher/ddprun",
                                        "--ways=none,auto", program};
    if (!kill) command.push_back("--no-kill");
    Process run(command, {{"DDPRUN_TOTALS_FILE", ""}});
    // Up to six starts of PyTorch, one after another.
    EXPECT_EQ(run.Wait(4 * Process::kPatience), 0) << run.Out() << run.Err();
    EXPECT_EQ(Count(run.Out(), "1 passed, 0 failed\n"), 1) << run.Out() << run.Err();
  }
};

TEST_F(QuickProgramsTest, TcpStore_Operations_EqualTorchruns) { ExpectAlike("tcp_store"); }

TEST_F(QuickProgramsTest, DistributedCheckpoint_ResumesAfterKill) { ExpectAlike("dcp", true); }

TEST_F(QuickProgramsTest, FullyShard_KilledAndRestarted_EqualsTorchruns) { ExpectAlike("fsdp2"); }

TEST_F(QuickProgramsTest, TensorParallel_KilledAndRestarted_EqualsTorchruns) { ExpectAlike("dtensor"); }

TEST_F(QuickProgramsTest, Record_Exception_IsInSummary) { ExpectAlike("record"); }

}  // namespace
}  // namespace ddprun::testing
