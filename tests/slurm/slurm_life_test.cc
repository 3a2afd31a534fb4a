// Actions of SLURM on a running job, their effect on the workers, and the states that SLURM shows afterwards.
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "tests/e2e/launch.h"
#include "tests/slurm/slurm_cluster.h"

namespace ddprun::testing {
namespace {

class LifeTest : public SlurmTest {
 protected:
  static void SetUpTestSuite() { BringUp({.cpus = {2, 2}, .kill_wait = absl::Seconds(8)}); }

  // The step in the last line with `event`: "rank 0 of 2 on node1, round 1: TERM at step 11, ...".
  static int StepOf(const Job& job, const std::string& event) {
    const std::string output = job.Output(), words = absl::StrCat(event, " at step ");
    const size_t at = output.rfind(words);
    return at == std::string::npos ? -1 : atoi(output.c_str() + at + words.size());
  }

  // Waits for the end of a job that SLURM starts again, and checks that it has resumed from the step that it saved.
  static void ExpectResumed(const Job& job) {
    ASSERT_TRUE(job.WaitForOutput("rank 0 of 2 on node1, round 1: TERM at step")) << job.Output();
    const int saved = StepOf(job, "rank 0 of 2 on node1, round 1: TERM");
    EXPECT_EQ(job.WaitForEnd(), "COMPLETED") << job.Output();
    EXPECT_EQ(job.Field("Restarts"), "1");
    EXPECT_EQ(StepOf(job, "rank 0 of 2 on node1, round 1: begins"), saved) << job.Output();
  }

  static void ExpectNoTrainerLeft() {
    EXPECT_TRUE(Eventually([] { return Run("pgrep -f work/bin/trainer").code != 0; }))
        << Run("pgrep -af work/bin/trainer").out;
  }
};

// ---- How the job ends reaches SLURM ----

TEST_F(LifeTest, WorkerFailure_NoRestarts_SlurmShowsItsCode) {
  const Job job = Train("-N2", "", "FAIL_WITH=7 FAIL_AT=5");
  EXPECT_EQ(job.WaitForEnd(), "FAILED") << job.Output();
  EXPECT_EQ(job.Field("ExitCode"), "7:0");
  EXPECT_THAT(job.Output(), AllOf(HasSubstr("rank 1 on node2 (local rank 0, pid"), HasSubstr("exited with code 7")));
  ExpectNoTrainerLeft();
}

TEST_F(LifeTest, WorkerFailure_RestartLeft_ResumesFromCheckpoint) {
  const Job job = Train("-N2", "--max-restarts=1", "FAIL_WITH=7 FAIL_AT=12 STEPS=30");
  EXPECT_EQ(job.WaitForEnd(), "COMPLETED") << job.Output();
  EXPECT_THAT(job.Output(), HasSubstr("rank 1 of 2 on node2, round 2: begins at step 1"));
  EXPECT_THAT(job.Output(), HasSubstr("rank 0 of 2 on node1, round 2: done at step 30"));
}

TEST_F(LifeTest, WorkerFailure_NonRestartable_SlurmShowsItsCode) {
  const Job job = Train("-N2", "--max-restarts=3", "FAIL_WITH=78 FAIL_AT=5");
  EXPECT_EQ(job.WaitForEnd(), "FAILED") << job.Output();
  EXPECT_EQ(job.Field("ExitCode"), "78:0");
  EXPECT_THAT(job.Output(), Not(HasSubstr("round 2")));
}

TEST_F(LifeTest, Start_ProgramMissing_SlurmShowsItsCode) {
  const Job job = Submit("-N2", "srun ddprun --no-python ./there_is_none");
  EXPECT_EQ(job.WaitForEnd(), "FAILED") << job.Output();
  EXPECT_EQ(job.Field("ExitCode"), "127:0") << job.Output();
}

// ---- Signals ----

TEST_F(LifeTest, Scancel_Job_WorkersGetTermOnceAndSave) {
  const Job job = Training("-N2", "");
  Run(absl::StrCat("scancel ", job.id()));
  EXPECT_EQ(job.WaitForEnd(), "CANCELLED");
  ASSERT_TRUE(Eventually([&] { return absl::StrContains(job.Output(), "rank 0 of 2 on node1, round 1: TERM"); }));
  ExpectNoTrainerLeft();
  EXPECT_EQ(Count(job.Output(), ": TERM at step"), 2) << job.Output();
  EXPECT_THAT(job.Output(), Not(HasSubstr("round 2")));
}

TEST_F(LifeTest, Scancel_StepWithTerm_SrunExitsWith143) {
  const Job job = Training("-N2", "");
  Run(absl::StrCat("scancel --signal=TERM ", job.id(), ".0"));
  EXPECT_EQ(job.WaitForEnd(), "FAILED");
  EXPECT_EQ(job.Field("ExitCode"), "143:0") << job.Output();
  EXPECT_EQ(Count(job.Output(), ": TERM at step"), 2) << job.Output();
}

// KillWait is 8 s here: the launcher kills a second before SLURM would, and can still log it.
TEST_F(LifeTest, Scancel_WorkerIgnoresTerm_IsKilledBeforeSlurmWould) {
  const Job job = Submit("-N2", "srun ddprun --no-python sh -c 'trap \"\" TERM; echo begun; sleep 60'");
  ASSERT_TRUE(job.WaitForOutput("begun\n", 2)) << job.Output();
  Run(absl::StrCat("scancel ", job.id()));
  EXPECT_EQ(job.WaitForEnd(), "CANCELLED");
  EXPECT_TRUE(Eventually([&] { return Count(job.Output(), "Exited with exit code 143") == 2; })) << job.Output();
}

TEST_F(LifeTest, Deadline_InJob_IsInWorkersEnvironment) {
  const Job job = Submit("-N2 --time=10",
                         "srun ddprun --no-python sh -c 'echo grace $DDPRUN_STOP_GRACE, end $DDPRUN_JOB_END_TIME.; "
                         "sleep 1'");
  EXPECT_EQ(job.WaitForEnd(), "COMPLETED") << job.Output();
  EXPECT_THAT(job.Output(), HasSubstr("grace 7, end "));
}

// SLURM then kills all processes at once, and no worker can save.
TEST_F(LifeTest, Scancel_Step_ProcessesEnd) {
  const Job job = Training("-N2", "");
  Run(absl::StrCat("scancel ", job.id(), ".0"));
  EXPECT_EQ(job.WaitForEnd(), "FAILED");
  EXPECT_EQ(job.Field("ExitCode"), "137:0") << job.Output();
  ExpectNoTrainerLeft();
}

TEST_F(LifeTest, Warning_WorkersWithHandler_GetItOnceAndContinue) {
  const Job job = Training("-N2", "", "STEPS=40");
  Run(absl::StrCat("scancel --signal=USR1 ", job.id()));
  EXPECT_EQ(job.WaitForEnd(), "COMPLETED") << job.Output();
  EXPECT_EQ(Count(job.Output(), ": USR1 at step"), 2) << job.Output();
  EXPECT_THAT(job.Output(), HasSubstr("rank 0 of 2 on node1, round 1: done at step 40"));
}

TEST_F(LifeTest, Warning_WorkersWithoutHandler_Survive) {
  const Job job =
      Submit("-N2", "srun ddprun --no-python sh -c 'echo begun; until [ -e go ]; do sleep 0.1; done; echo still here'");
  ASSERT_TRUE(job.WaitForOutput("begun\n", 2)) << job.Output();
  Run(absl::StrCat("scancel --signal=USR1 ", job.id()));
  Run(absl::StrCat("scancel --signal=USR2 ", job.id()));
  Run("touch go");
  EXPECT_EQ(job.WaitForEnd(), "COMPLETED") << job.Output();
  EXPECT_EQ(Count(job.Output(), "still here\n"), 2) << job.Output();
}

// ---- Starting again ----

TEST_F(LifeTest, Requeue_Scontrol_ResumesFromNewestCheckpoint) {
  const Job job = Training("-N2 --requeue", "", "STEPS=40");
  Run(absl::StrCat("scontrol requeue ", job.id()));
  ASSERT_TRUE(job.WaitForOutput(": TERM at step", 2)) << job.Output();
  ExpectResumed(job);
}

TEST_F(LifeTest, Requeue_Preemption_ResumesFromNewestCheckpoint) {
  const Job job = Training("-N2 --requeue --exclusive", "", "STEPS=40");
  const Job urgent = Submit("-N2 --exclusive --partition=urgent", "srun ddprun --no-python echo urgent");
  EXPECT_EQ(urgent.WaitForEnd(), "COMPLETED") << urgent.Output();
  ExpectResumed(job);
}

// SLURM checks limits twice a minute: the check before this job's end sends the warning, the one after it ends the job.
TEST_F(LifeTest, TimeLimit_Reached_WarningThenTermThenTimeout) {
  const Job job = Training("-N2 --time=1 --signal=USR1@60", "");
  Run(absl::StrCat("scontrol update EndTime=now+31 JobId=", job.id()));
  EXPECT_EQ(job.WaitForEnd(), "TIMEOUT") << job.Output();
  ExpectNoTrainerLeft();
  EXPECT_EQ(Count(job.Output(), ": USR1 at step"), 2) << job.Output();
  EXPECT_EQ(Count(job.Output(), ": TERM at step"), 2) << job.Output();
}

}  // namespace
}  // namespace ddprun::testing
