#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/e2e/launch.h"
#include "tests/worker_runtime/testing/rank_processes.h"

namespace ddprun::testing {
namespace {

using ::testing::HasSubstr;

constexpr char kProgram[] = "tests/worker_runtime/testing/rank_program";

TEST(LaunchedWorker, Launch_EachBehaviour_HasItsExitCodeAndSummary) {
  const struct {
    const char* behaviour;
    int exit_code;
    std::vector<std::string> summary;
  } cases[] = {
      {"ok", 0, {}},
      {"error", 1, {"rank 1: the data of rank 1 are bad"}},
      {"crash", 128 + SIGSEGV, {"invalid memory access at address 0x10", "WriteToNowhere"}},
      {"uncaught",
       128 + SIGABRT,
       {"message   : rank 1: uncaught exception: nobody catches this", "Native stack (most recent call first):\n"}},
      {"progress", 128 + SIGKILL, {"was killed by SIGKILL; last reported step 120, phase backward, loss 2.5, "}},
      {"give_up", 78, {"rank 1: --layers is -1"}},
  };
  for (const auto& [behaviour, exit_code, summary] : cases) {
    SCOPED_TRACE(behaviour);
    // A non-restartable error is not restarted.
    const int restarts = exit_code == 78 ? 3 : 0;
    Launcher launcher({"--standalone", "--nproc-per-node=3", absl::StrCat("--max-restarts=", restarts), "--no-python",
                       kProgram, behaviour});
    EXPECT_EQ(launcher.Wait(), exit_code) << launcher.Err();
    for (const std::string& text : summary) EXPECT_THAT(launcher.Err(), HasSubstr(text));
    // Ranks other than 1 may be killed before they are ready.
    EXPECT_EQ(Count(launcher.Out(), exit_code == 0 ? " ready" : "rank 1 ready"), exit_code == 0 ? 3 : 1);
  }
}

// Without DDPRUN_STOP_GRACE, which would also give the deadline.
TEST(LaunchedWorker, StopRequested_HasTheLaunchersDeadline) {
  Launcher launcher({"--standalone", "--nproc-per-node=2", "--shutdown-timeout=300", "--no-python", "env", "-u",
                     "DDPRUN_STOP_GRACE", kProgram, "stop"});
  ASSERT_TRUE(launcher.WaitForOut("rank 0 ready") && launcher.WaitForOut("rank 1 ready")) << launcher.Err();
  launcher.Signal(SIGTERM);
  EXPECT_EQ(launcher.Wait(), 128 + SIGTERM) << launcher.Err();
  EXPECT_EQ(Count(launcher.Out(), "stops, at most 300 s left"), 2) << launcher.Out();
}

TEST(LaunchedWorker, Restart_RankFailed_FormsANewGroup) {
  // The first attempt fails on rank 1.
  const std::string script = "if [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then exec " + std::string(kProgram) +
                             " error; else exec " + kProgram + " ok; fi";
  Launcher launcher({"--standalone", "--nproc-per-node=2", "--max-restarts=1", "--no-python", "sh", "-c", script});
  EXPECT_EQ(launcher.Wait(), 0) << launcher.Err();
  EXPECT_EQ(Count(launcher.Out(), "rank 0 ready"), 2);
}

}  // namespace
}  // namespace ddprun::testing
