#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "tests/e2e/launch.h"
#include "tests/worker_runtime/testing/rank_processes.h"

namespace ddprun::testing {
namespace {

using ::testing::HasSubstr;

constexpr char kProgram[] = "tests/worker_runtime/testing/rank_program";

TEST(LaunchedWorker, Success_IsTheLaunchersSuccess) {
  Launcher launcher({"--standalone", "--nproc-per-node=3", "--no-python", kProgram, "ok"});
  EXPECT_EQ(launcher.Wait(), 0) << launcher.Err();
  for (const char* line : {"rank 0 ready", "rank 1 ready", "rank 2 ready"})
    EXPECT_THAT(launcher.Out(), HasSubstr(line));
}

TEST(LaunchedWorker, Error_IsInTheFailureSummary) {
  Launcher launcher({"--standalone", "--nproc-per-node=3", "--no-python", kProgram, "error"});
  EXPECT_EQ(launcher.Wait(), 1);
  EXPECT_THAT(launcher.Err(), HasSubstr("rank 1: the data of rank 1 are bad"));
}

TEST(LaunchedWorker, Crash_TheSummaryHasTheStack) {
  Launcher launcher({"--standalone", "--nproc-per-node=2", "--no-python", kProgram, "crash"});
  EXPECT_EQ(launcher.Wait(), 128 + SIGSEGV);
  EXPECT_THAT(launcher.Err(), HasSubstr("invalid memory access at address 0x10"));
  EXPECT_THAT(launcher.Err(), HasSubstr("WriteToNowhere"));
}

TEST(LaunchedWorker, UncaughtExceptionInAThread_TheSummaryHasItsTextAndTheStack) {
  Launcher launcher({"--standalone", "--nproc-per-node=2", "--no-python", kProgram, "uncaught"});
  EXPECT_EQ(launcher.Wait(), 128 + SIGABRT);
  EXPECT_THAT(launcher.Err(), HasSubstr("message   : rank 1: uncaught exception: nobody catches this"));
  EXPECT_THAT(launcher.Err(), HasSubstr("Native stack (most recent call first):\n"));
}

// Without DDPRUN_STOP_GRACE, of which nothing else would tell.
TEST(LaunchedWorker, StopRequested_HasTheLaunchersDeadline) {
  Launcher launcher({"--standalone", "--nproc-per-node=2", "--shutdown-timeout=300", "--no-python", "env", "-u",
                     "DDPRUN_STOP_GRACE", kProgram, "stop"});
  ASSERT_TRUE(launcher.WaitForOut("rank 0 ready") && launcher.WaitForOut("rank 1 ready")) << launcher.Err();
  launcher.Signal(SIGTERM);
  EXPECT_EQ(launcher.Wait(), 128 + SIGTERM) << launcher.Err();
  EXPECT_EQ(Count(launcher.Out(), "stops, at most 300 s left"), 2) << launcher.Out();
}

TEST(LaunchedWorker, ReportProgress_TheSummarySaysWhereItWas) {
  Launcher launcher({"--standalone", "--nproc-per-node=2", "--no-python", kProgram, "progress"});
  EXPECT_EQ(launcher.Wait(), 128 + SIGKILL);
  EXPECT_THAT(launcher.Err(), HasSubstr("was killed by SIGKILL; last reported step 120, phase backward, loss 2.5, "));
}

TEST(LaunchedWorker, NonRestartableError_EndsTheJobWith78) {
  Launcher launcher({"--standalone", "--nproc-per-node=2", "--max-restarts=3", "--no-python", kProgram, "give_up"});
  EXPECT_EQ(launcher.Wait(), 78);
  EXPECT_THAT(launcher.Err(), HasSubstr("rank 1: --layers is -1"));
  EXPECT_EQ(Count(launcher.Out(), "rank 1 ready"), 1);
}

TEST(LaunchedWorker, AfterARestart_ANewGroupForms) {
  TempDir folder;
  // The first attempt fails on rank 1.
  const std::string script = "if [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then exec " + std::string(kProgram) +
                             " error; else exec " + kProgram + " ok; fi";
  Launcher launcher({"--standalone", "--nproc-per-node=2", "--max-restarts=1", "--no-python", "sh", "-c", script});
  EXPECT_EQ(launcher.Wait(), 0) << launcher.Err();
  EXPECT_EQ(Count(launcher.Out(), "rank 0 ready"), 2);
}

}  // namespace
}  // namespace ddprun::testing
