// Signals before the end of a job, with real launchers and workers. A copy of the shell named slurmstepd sends them in
// SLURM's place: launchers identify the sender by the name of its program.
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>

#include "tests/e2e/launch.h"

namespace ddprun::testing {
namespace {

constexpr char kTellSignals[] =
    "trap 'echo term $RANK' TERM; trap 'echo usr1 $RANK' USR1; trap 'echo usr2 $RANK' USR2; "
    "echo \"up $$ .\"; while :; do sleep 0.02; done";

// Process ids that workers printed as "up PID .".
std::vector<pid_t> Workers(const std::string& out) {
  std::vector<pid_t> pids;
  for (size_t at = out.find("up "); at != std::string::npos; at = out.find("up ", at + 1)) {
    pids.push_back(atoi(out.c_str() + at + 3));
  }
  return pids;
}

bool AllUp(Launcher* launcher, int workers) {
  return Eventually([&] { return Count(launcher->Out(), "up ") == workers; });
}

TEST(LifeTest, Sigusr_RunningJob_ReachesEveryWorker) {
  Launcher launcher(Standalone(2, {"--shutdown-timeout=0.2"}, kTellSignals));
  ASSERT_TRUE(AllUp(&launcher, 2));
  launcher.Signal(SIGUSR1);
  EXPECT_TRUE(Eventually([&] { return Count(launcher.Out(), "usr1") == 2; }));
  launcher.Signal(SIGUSR2);
  EXPECT_TRUE(Eventually([&] { return Count(launcher.Out(), "usr2") == 2; }));
  EXPECT_TRUE(launcher.WaitForErr("received SIGUSR2 from process"));
  launcher.Signal(SIGTERM);
  EXPECT_EQ(launcher.Wait(), 128 + SIGTERM);
}

TEST(LifeTest, Sigusr_InSignalsToHandle_StopsJob) {
  Launcher launcher(Standalone(1, {"--signals-to-handle=SIGUSR1", "--shutdown-timeout=0.2"}, kTellSignals));
  ASSERT_TRUE(AllUp(&launcher, 1));
  launcher.Signal(SIGUSR1);
  EXPECT_EQ(launcher.Wait(), 128 + SIGUSR1);
}

// A launcher whose parent has changed how these signals are handled, by flags of env(1).
Process UnderEnv(std::vector<std::string> env, std::vector<std::string> arguments) {
  env.insert(env.begin(), "/usr/bin/env");
  env.push_back("launcher/ddprun");
  env.insert(env.end(), arguments.begin(), arguments.end());
  return Process(std::move(env));
}

TEST(LifeTest, Sigchld_IgnoredByParent_WorkerEndIsSeen) {
  Process launcher = UnderEnv({"--ignore-signal=CHLD"}, Standalone(2, {}, "exit 3"));
  EXPECT_EQ(launcher.Wait(), 3) << launcher.Err();
}

TEST(LifeTest, Signals_BlockedOrIgnoredByParent_WorkersGetDefaults) {
  const char kShowSignals[] = "grep -E 'Sig(Blk|Ign)' /proc/self/status; echo \"up $$ .\"; exec sleep 1000";
  Process launcher =
      UnderEnv({"--ignore-signal", "--block-signal"}, Standalone(1, {"--signals-to-handle=SIGTERM"}, kShowSignals));
  ASSERT_TRUE(launcher.WaitForOut("up ")) << launcher.Err();
  // nohup's SIGHUP stays ignored.
  EXPECT_THAT(launcher.Out(), HasSubstr("SigBlk:\t0000000000000000\nSigIgn:\t0000000000000001\n"));
  launcher.Signal(SIGTERM);
  EXPECT_EQ(launcher.Wait(), 128 + SIGTERM);
}

// A worker that is a shell script, whose program saves on SIGTERM.
constexpr char kProgram[] = "sh -c 'trap \"echo saved; exit 0\" TERM; echo \"up $$ .\"; while :; do sleep 0.02; done'";

TEST(LifeTest, Sigterm_WrapperScript_ProgramSaves) {
  Launcher launcher(Standalone(2, {}, absl::StrCat(kProgram, "; echo went on")));
  ASSERT_TRUE(AllUp(&launcher, 2));
  launcher.Signal(SIGTERM);
  EXPECT_EQ(launcher.Wait(), 128 + SIGTERM);
  EXPECT_EQ(Count(launcher.Out(), "saved"), 2) << launcher.Out();
  EXPECT_EQ(Count(launcher.Out(), "went on"), 0);
}

TEST(LifeTest, Sigterm_WrapperScriptWithTrap_ProgramSavesFirst) {
  Launcher launcher(Standalone(1, {}, absl::StrCat("trap 'echo cleaned up' TERM; ", kProgram, "; echo went on")));
  ASSERT_TRUE(AllUp(&launcher, 1));
  launcher.Signal(SIGTERM);
  EXPECT_EQ(launcher.Wait(), 128 + SIGTERM);
  EXPECT_THAT(launcher.Out(), HasSubstr("saved\ncleaned up\nwent on\n"));
}

TEST(LifeTest, Sigterm_ProgramOfWrapperScriptIgnoresIt_IsKilled) {
  Launcher launcher(Standalone(1, {"--shutdown-timeout=0.3"}, absl::StrCat("(", kTellSignals, "); true")));
  ASSERT_TRUE(AllUp(&launcher, 1));
  launcher.Signal(SIGTERM);
  EXPECT_EQ(launcher.Wait(), 128 + SIGTERM);
  EXPECT_EQ(Count(launcher.Out(), "term"), 1) << launcher.Out();
}

class SlurmLifeTest : public ::testing::Test {
 protected:
  SlurmLifeTest() {
    std::filesystem::copy_file("/bin/sh", folder_.File("slurmstepd"));
    FILE* conf = fopen(folder_.File("slurm.conf").c_str(), "w");
    fputs("ClusterName=c\nKillWait=8\nProctrackType=proctrack/linuxproc\n", conf);
    fclose(conf);
    // Replaces the tool, with the real one's output.
    FILE* squeue = fopen(folder_.File("squeue").c_str(), "w");
    fputs("#!/bin/sh\necho 77 2033-05-18T03:33:20 1:00\n", squeue);
    fclose(squeue);
    std::filesystem::permissions(folder_.File("squeue"), std::filesystem::perms::owner_all);
  }

  std::map<std::string, std::string> Environment() const {
    return {{"SLURM_JOB_ID", "77"},
            {"SLURM_STEP_ID", "0"},
            {"SLURM_NODEID", "0"},
            {"SLURM_STEP_NUM_NODES", "1"},
            {"SLURM_STEP_NODELIST", "localhost"},
            {"SLURM_STEP_TASKS_PER_NODE", "1"},
            {"SLURM_CONF", folder_.File("slurm.conf")},
            {"PATH", folder_.path() + ":/usr/bin:/bin"},
            {"TZ", "UTC"}};
  }

  // Sends `signal` to these processes in turn, as SLURM does to those of a step.
  void SendAsSlurm(const std::string& signal, std::vector<pid_t> pids) {
    std::string script;
    for (const pid_t pid : pids) absl::StrAppend(&script, "kill -", signal, " ", pid, "; ");
    stepds_.push_back(std::make_unique<Process>(
        std::vector<std::string>{folder_.File("slurmstepd"), "-c", script + "while :; do sleep 0.05; done"}));
  }

  TempDir folder_;
  std::vector<std::unique_ptr<Process>> stepds_;
};

TEST_F(SlurmLifeTest, Start_InSlurmStep_WorkersGetGraceAndEndTime) {
  Finished launcher(0, Standalone(1, {}, "echo grace=$DDPRUN_STOP_GRACE"), Environment());
  EXPECT_EQ(launcher.Out(), "grace=7\n");
}

TEST_F(SlurmLifeTest, Start_SlurmIsSlow_EndTimeIsSetFromNextStart) {
  // The first workers run until the launcher has logged the end time.
  Launcher launcher(Standalone(1, {"--max-restarts=1"},
                               "echo \"up $$ .\"; [ $TORCHELASTIC_RESTART_COUNT = 0 ] || "
                               "{ echo end=$DDPRUN_JOB_END_TIME; exit 0; }; while [ ! -e " +
                                   folder_.File("go") + " ]; do sleep 0.02; done; exit 3"),
                    Environment());
  ASSERT_TRUE(AllUp(&launcher, 1));
  EXPECT_TRUE(Eventually([&] {
    launcher.Signal(SIGUSR1);
    return launcher.Err().find("the job's time ends in") != std::string::npos;
  })) << launcher.Err();
  Touch(folder_.File("go"));
  EXPECT_EQ(launcher.Wait(), 0) << launcher.Err();
  EXPECT_THAT(launcher.Out(), HasSubstr("end=2000000000\n"));
}

TEST_F(SlurmLifeTest, Warning_WorkersWithoutHandler_Survive) {
  Launcher launcher(Standalone(2, {"--shutdown-timeout=0.2"}, "echo \"up $$ .\"; exec sleep 1000"), Environment());
  ASSERT_TRUE(AllUp(&launcher, 2));
  std::vector<pid_t> all = Workers(launcher.Out());
  all.push_back(launcher.pid());
  SendAsSlurm("USR1", all);
  EXPECT_TRUE(launcher.WaitForErr("received SIGUSR1 from SLURM; the workers have it too; "));
  for (const pid_t pid : Workers(launcher.Out())) EXPECT_TRUE(Alive(pid));
  launcher.Signal(SIGTERM);
  EXPECT_EQ(launcher.Wait(), 128 + SIGTERM);
}

TEST_F(SlurmLifeTest, Sigterm_ToWholeStep_WorkersGetItOnce) {
  Launcher launcher(Standalone(2, {"--shutdown-timeout=0.5"}, kTellSignals), Environment());
  ASSERT_TRUE(AllUp(&launcher, 2));
  SendAsSlurm("TERM", {launcher.pid()});
  EXPECT_EQ(launcher.Wait(), 128 + SIGTERM);
  EXPECT_EQ(Count(launcher.Out(), "term"), 0) << "the workers were not signalled here, and not by the launcher";
  EXPECT_THAT(launcher.Err(), HasSubstr("received SIGTERM from SLURM; workers have 500ms to save and end"));
}

TEST_F(SlurmLifeTest, Sigterm_WorkersDieBeforeLauncherGetsIt_IsNoFailure) {
  Launcher launcher(Standalone(2, {"--max-restarts=3"}, "echo \"up $$ .\"; exec sleep 1000"), Environment());
  ASSERT_TRUE(AllUp(&launcher, 2));
  std::vector<pid_t> all = Workers(launcher.Out());
  all.push_back(launcher.pid());
  SendAsSlurm("TERM", all);
  EXPECT_EQ(launcher.Wait(), 128 + SIGTERM);
  EXPECT_EQ(Lines(launcher.Err()), 1) << launcher.Err();
  EXPECT_EQ(Count(launcher.Out(), "up "), 2) << "nothing was started again: " << launcher.Out();
}

}  // namespace
}  // namespace ddprun::testing
