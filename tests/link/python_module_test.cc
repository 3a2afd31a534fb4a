// ddprun.worker, the Python module, with real launchers.
#include <signal.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "tests/e2e/launch.h"

namespace ddprun::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class PythonModuleTest : public ::testing::Test {
 protected:
  std::string Script(const std::string& text) const {
    std::ofstream(dir_.File("train.py")) << "import os, sys, time\nfrom ddprun import worker\n" << text;
    return dir_.File("train.py");
  }
  std::vector<std::string> Flags(const std::string& script, std::vector<std::string> more = {}) const {
    std::vector<std::string> flags = {"--standalone", "--nproc-per-node=1"};
    flags.insert(flags.end(), more.begin(), more.end());
    flags.push_back(Script(script));
    return flags;
  }

  const std::map<std::string, std::string> python_ = {{"PYTHON_EXEC", "python3"},
                                                      {"PYTHONPATH", std::filesystem::absolute("packaging/wheel")}};
  const TempDir dir_;
};

TEST_F(PythonModuleTest, ReportProgress_TheSummaryHasTheLastOne) {
  Launcher launcher(Flags(R"(
worker.report_progress(119)
worker.report_progress(120, samples=7680, phase="r\u00fcckw\u00e4rts \ud800", loss=float("inf"))
sys.exit(3)
)"),
                    python_);
  EXPECT_EQ(launcher.Wait(), 3);
  EXPECT_THAT(launcher.Err(), HasSubstr("exited with code 3; last reported step 120, 7680 samples, phase "
                                        "r\xC3\xBC"
                                        "ckw\xC3\xA4rts ?, loss inf, "))
      << launcher.Err();
}

TEST_F(PythonModuleTest, ReportProgress_ValuesOutOfRange_AreRefused) {
  Launcher launcher(Flags(R"(
for arguments in ({"step": -1}, {"step": 1, "samples": -1}, {"step": 2**63}):
    try:
        worker.report_progress(**arguments)
    except ValueError:
        print("refused .", flush=True)
worker.report_progress(2**63 - 1)
sys.exit(3)
)"),
                    python_);
  EXPECT_EQ(launcher.Wait(), 3);
  EXPECT_EQ(Count(launcher.Out(), "refused ."), 3);
  EXPECT_THAT(launcher.Err(), HasSubstr("last reported step 9223372036854775807, ")) << launcher.Err();
}

TEST_F(PythonModuleTest, ReportProgress_InAForkedChild_DoesNothing) {
  Launcher launcher(Flags(R"(
worker.report_progress(1)
child = os.fork()
if child == 0:
    worker.report_progress(99)
    os._exit(0)
os.waitpid(child, 0)
worker.report_progress(2)
sys.exit(3)
)"),
                    python_);
  EXPECT_EQ(launcher.Wait(), 3);
  EXPECT_THAT(launcher.Err(), AllOf(HasSubstr("last reported step 2, "), Not(HasSubstr("worker link"))))
      << launcher.Err();
}

TEST_F(PythonModuleTest, ReportProgress_LauncherThatHangs_IsNotWaitedFor) {
  Launcher launcher(Flags(absl::StrCat(R"(
worker.report_progress(0)
print("ready .", flush=True)
while not os.path.exists(")",
                                       dir_.File("go"), R"("): time.sleep(0.01)
for step in range(20000): worker.report_progress(step, phase="forward")
print("reported .", flush=True)
)")),
                    python_);
  ASSERT_TRUE(launcher.WaitForOut("ready ."));
  launcher.Signal(SIGSTOP);
  std::ofstream(dir_.File("go")) << "";
  EXPECT_TRUE(launcher.WaitForOut("reported ."));
  launcher.Signal(SIGCONT);
  EXPECT_EQ(launcher.Wait(), 0) << launcher.Err();
  EXPECT_THAT(launcher.Err(), Not(HasSubstr("worker link")));
}

TEST_F(PythonModuleTest, StopRequested_HasTheLaunchersDeadline) {
  Launcher launcher(Flags(R"(
del os.environ["DDPRUN_STOP_GRACE"]
assert worker.stop_requested() is None
print("ready .", flush=True)
while worker.stop_requested() is None: time.sleep(0.01)
print("between 30 and 300:", 30 < worker.stop_requested() <= 300, ".", flush=True)
)",
                          {"--shutdown-timeout=300"}),
                    python_);
  ASSERT_TRUE(launcher.WaitForOut("ready ."));
  launcher.Signal(SIGTERM);
  EXPECT_EQ(launcher.Wait(), 128 + SIGTERM);
  EXPECT_THAT(launcher.Out(), HasSubstr("between 30 and 300: True .")) << launcher.Err();
}

TEST_F(PythonModuleTest, WithoutALauncher_ReportsGoNowhere_ASignalStops) {
  Process alone({"/usr/bin/env", "python3", Script(R"(
import signal
worker.report_progress(1)
assert worker.stop_requested() is None
os.environ["DDPRUN_STOP_GRACE"] = "7"
os.kill(os.getpid(), signal.SIGTERM)
print("at most 7:", 0 < worker.stop_requested() <= 7, ".")
)")},
                {{"PYTHONPATH", python_.at("PYTHONPATH")}});
  EXPECT_EQ(alone.Wait(), 0) << alone.Err();
  EXPECT_EQ(alone.Out(), "at most 7: True .\n");
}

TEST_F(PythonModuleTest, KeepProcess_AfterAReport_TheLauncherHasOneConnection) {
  Launcher launcher(Flags(R"(
worker.report_progress(1)
print(worker.keep_process(on_suspend=print), worker.suspend_requested(), ".", flush=True)
worker.report_progress(7)
sys.exit(3)
)"),
                    python_);
  EXPECT_EQ(launcher.Wait(), 3);
  EXPECT_THAT(launcher.Out(), HasSubstr("True None ."));
  EXPECT_THAT(launcher.Err(), AllOf(HasSubstr("last reported step 7"), Not(HasSubstr("worker link"))))
      << launcher.Err();
}

TEST_F(PythonModuleTest, KeepProcess_WithoutALauncher_NothingWaits) {
  std::map<std::string, std::string> environment = python_;
  environment["DDPRUN_WORKER_LINK"] = "";
  Process process({"/usr/bin/env", "python3", Script(R"(
print(worker.keep_process(on_suspend=print), worker.suspended(3), worker.next_round(), ".")
)")},
                  environment);
  EXPECT_EQ(process.Wait(), 0) << process.Err();
  EXPECT_EQ(process.Out(), "False False None .\n");
}

}  // namespace
}  // namespace ddprun::testing
