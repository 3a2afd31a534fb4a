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

  // A two-node job that trains in a separate folder, into which the batch script writes srun's result.
  static Job Train(const std::string& flags, const std::string& ddprun_flags, const std::string& variables = "") {
    static int jobs = 0;
    const std::string folder = absl::StrCat(Folder(), "/train", ++jobs);
    Run(absl::StrCat("mkdir ", folder));
    Job job = Submit(absl::StrCat("-N2 --open-mode=append --chdir=", folder, " ", flags),
                     absl::StrCat("export ", variables, " NONE=; srun ddprun ", ddprun_flags,
                                  " --no-python trainer ${STEPS-}; code=$?; echo srun ended "
                                  "with $code; exit $code"));
    return job;
  }

  // The step in the last line with `event`: "rank 0 of 2 on node1, round 1: TERM at step 11, ...".
  static int StepOf(const Job& job, const std::string& event) {
    const std::string output = job.Output(), words = absl::StrCat(event, " at step ");
    const size_t at = output.rfind(words);
    return at == std::string::npos ? -1 : atoi(output.c_str() + at + words.size());
  }

  static void ExpectNoTrainerLeft() {
    EXPECT_TRUE(Eventually([] { return Run("pgrep -f work/bin/trainer").code != 0; }))
        << Run("pgrep -af work/bin/trainer").out;
  }
};

// ---- How the job ends reaches SLURM ----

TEST_F(LifeTest, WorkerFails_SlurmShowsItsCode) {
  const Job job = Train("", "", "FAIL_WITH=7 FAIL_AT=5");
  EXPECT_EQ(job.WaitForEnd(), "FAILED") << job.Output();
  EXPECT_EQ(job.Field("ExitCode"), "7:0");
  EXPECT_THAT(job.Output(), AllOf(HasSubstr("rank 1 on node2 (local rank 0, pid"), HasSubstr("exited with code 7")));
  ExpectNoTrainerLeft();
}

TEST_F(LifeTest, WorkerFails_RestartLeft_GoesOnFromTheCheckpoint) {
  const Job job = Train("", "--max-restarts=1", "FAIL_WITH=7 FAIL_AT=12 STEPS=30");
  EXPECT_EQ(job.WaitForEnd(), "COMPLETED") << job.Output();
  EXPECT_THAT(job.Output(), HasSubstr("rank 1 of 2 on node2, round 2: begins at step 1"));
  EXPECT_THAT(job.Output(), HasSubstr("rank 0 of 2 on node1, round 2: done at step 30"));
}

TEST_F(LifeTest, WorkerSaysNoUse_NoRestart_SlurmShowsIt) {
  const Job job = Train("", "--max-restarts=3", "FAIL_WITH=78 FAIL_AT=5");
  EXPECT_EQ(job.WaitForEnd(), "FAILED") << job.Output();
  EXPECT_EQ(job.Field("ExitCode"), "78:0");
  EXPECT_THAT(job.Output(), Not(HasSubstr("round 2")));
}

TEST_F(LifeTest, NoSuchProgram_SlurmShowsIt) {
  const Job job = Submit("-N2", "srun ddprun --no-python ./there_is_none");
  EXPECT_EQ(job.WaitForEnd(), "FAILED") << job.Output();
  EXPECT_EQ(job.Field("ExitCode"), "127:0") << job.Output();
}

// ---- Signals ----

TEST_F(LifeTest, ScancelJob_WorkersHearOnceAndSave) {
  const Job job = Train("", "");
  ASSERT_TRUE(job.WaitForOutput("begins at step 0", 2)) << job.Output();
  Run(absl::StrCat("scancel ", job.id()));
  EXPECT_EQ(job.WaitForEnd(), "CANCELLED");
  ASSERT_TRUE(Eventually([&] { return absl::StrContains(job.Output(), "rank 0 of 2 on node1, round 1: TERM"); }));
  ExpectNoTrainerLeft();
  EXPECT_EQ(Count(job.Output(), ": TERM at step"), 2) << job.Output();
  EXPECT_THAT(job.Output(), Not(HasSubstr("round 2")));
}

TEST_F(LifeTest, ScancelStepWithTerm_SrunEndsWith143) {
  const Job job = Train("", "");
  ASSERT_TRUE(job.WaitForOutput("begins at step 0", 2)) << job.Output();
  Run(absl::StrCat("scancel --signal=TERM ", job.id(), ".0"));
  EXPECT_EQ(job.WaitForEnd(), "FAILED");
  EXPECT_EQ(job.Field("ExitCode"), "143:0") << job.Output();
  EXPECT_EQ(Count(job.Output(), ": TERM at step"), 2) << job.Output();
}

// KillWait is 8 s here: the launcher kills a second before SLURM would, and can still log it.
TEST_F(LifeTest, ScancelJob_WorkerThatDoesNotEnd_IsKilledBeforeSlurmWould) {
  const Job job = Submit("-N2", "srun ddprun --no-python sh -c 'trap \"\" TERM; echo begun; sleep 60'");
  ASSERT_TRUE(job.WaitForOutput("begun\n", 2)) << job.Output();
  Run(absl::StrCat("scancel ", job.id()));
  EXPECT_EQ(job.WaitForEnd(), "CANCELLED");
  EXPECT_TRUE(Eventually([&] { return Count(job.Output(), "Exited with exit code 143") == 2; })) << job.Output();
}

TEST_F(LifeTest, WorkersKnowTheDeadline) {
  const Job job = Submit("-N2 --time=10",
                         "srun ddprun --no-python sh -c 'echo grace $DDPRUN_STOP_GRACE, end $DDPRUN_JOB_END_TIME.; "
                         "sleep 1'");
  EXPECT_EQ(job.WaitForEnd(), "COMPLETED") << job.Output();
  EXPECT_THAT(job.Output(), HasSubstr("grace 7, end "));
}

// SLURM then kills all processes at once, and no worker can save.
TEST_F(LifeTest, ScancelStep_NothingIsLeft) {
  const Job job = Train("", "");
  ASSERT_TRUE(job.WaitForOutput("begins at step 0", 2)) << job.Output();
  Run(absl::StrCat("scancel ", job.id(), ".0"));
  EXPECT_EQ(job.WaitForEnd(), "FAILED");
  EXPECT_EQ(job.Field("ExitCode"), "137:0") << job.Output();
  ExpectNoTrainerLeft();
}

TEST_F(LifeTest, Warning_EachWorkerHearsOnceAndTrainsOn) {
  const Job job = Train("", "", "STEPS=40");
  ASSERT_TRUE(job.WaitForOutput("begins at step 0", 2)) << job.Output();
  Run(absl::StrCat("scancel --signal=USR1 ", job.id()));
  EXPECT_EQ(job.WaitForEnd(), "COMPLETED") << job.Output();
  EXPECT_EQ(Count(job.Output(), ": USR1 at step"), 2) << job.Output();
  EXPECT_THAT(job.Output(), HasSubstr("rank 0 of 2 on node1, round 1: done at step 40"));
}

TEST_F(LifeTest, Warning_WorkerWithoutHandlerLivesOn) {
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

TEST_F(LifeTest, Requeue_GoesOnFromTheNewestCheckpoint) {
  const Job job = Train("--requeue", "", "STEPS=40");
  ASSERT_TRUE(job.WaitForOutput("begins at step 0", 2)) << job.Output();
  Run(absl::StrCat("scontrol requeue ", job.id()));
  ASSERT_TRUE(job.WaitForOutput(": TERM at step", 2)) << job.Output();
  const int saved = StepOf(job, "rank 0 of 2 on node1, round 1: TERM");
  EXPECT_EQ(job.WaitForEnd(), "COMPLETED") << job.Output();
  EXPECT_EQ(job.Field("Restarts"), "1");
  EXPECT_EQ(StepOf(job, "rank 0 of 2 on node1, round 1: begins"), saved) << job.Output();
}

TEST_F(LifeTest, Preemption_GoesOnFromTheNewestCheckpoint) {
  const Job job = Train("--requeue --exclusive", "", "STEPS=40");
  ASSERT_TRUE(job.WaitForOutput("begins at step 0", 2)) << job.Output();
  const Job urgent = Submit("-N2 --exclusive --partition=urgent", "srun ddprun --no-python echo urgent");
  EXPECT_EQ(urgent.WaitForEnd(), "COMPLETED") << urgent.Output();
  const int saved = StepOf(job, "rank 0 of 2 on node1, round 1: TERM");
  EXPECT_GE(saved, 0) << job.Output();
  EXPECT_EQ(job.WaitForEnd(), "COMPLETED") << job.Output();
  EXPECT_EQ(job.Field("Restarts"), "1");
  EXPECT_EQ(StepOf(job, "rank 0 of 2 on node1, round 1: begins"), saved) << job.Output();
}

// SLURM checks limits twice a minute: the check before this job's end sends the warning, the one after it ends the job.
TEST_F(LifeTest, TimeLimit_WarningFirstThenTermThenTimeout) {
  const Job job = Train("--time=1 --signal=USR1@60", "");
  ASSERT_TRUE(job.WaitForOutput("begins at step 0", 2)) << job.Output();
  Run(absl::StrCat("scontrol update EndTime=now+31 JobId=", job.id()));
  EXPECT_EQ(job.WaitForEnd(), "TIMEOUT") << job.Output();
  ExpectNoTrainerLeft();
  EXPECT_EQ(Count(job.Output(), ": USR1 at step"), 2) << job.Output();
  EXPECT_EQ(Count(job.Output(), ": TERM at step"), 2) << job.Output();
}

}  // namespace
}  // namespace ddprun::testing
