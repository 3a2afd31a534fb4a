// The job scripts of examples/slurm, as a user submits them from the folder of a checkout.
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "tests/e2e/launch.h"
#include "tests/slurm/slurm_cluster.h"

namespace ddprun::testing {
namespace {

class ExamplesTest : public SlurmTest {
 protected:
  static void SetUpTestSuite() { BringUp({.cpus = {2, 2, 2}, .slurmd_timeout = absl::Seconds(5)}); }

  // Creates a checkout as after scripts/setup, with a small training: 60 steps take a second on an idle machine.
  void SetUp() override {
    SlurmTest::SetUp();
    if (IsSkipped()) return;
    namespace fs = std::filesystem;
    if (!fs::exists(Folder() + "/examples")) {
      fs::create_symlink(fs::absolute("examples"), Folder() + "/examples");
      fs::create_symlink(fs::absolute("examples/cpp/train_gpt"), Folder() + "/bin/train_gpt");
      fs::create_symlink(SourceRoot() + "/.venv", Folder() + "/.venv");
    }
    setenv("NPROC", "1", 1);
    setenv("OMP_NUM_THREADS", "1", 1);
    setenv("GPT_FLAGS",
           "--batch-size=16 --block-size=64 --n-layer=1 --n-head=2 --n-embd=64 --log-every=1 --snapshot-every=5 "
           "--sample=0",
           1);
    snapshots_ = absl::StrCat(Folder(), "/snapshots_", ::testing::UnitTest::GetInstance()->current_test_info()->name());
    setenv("SNAPSHOTS", snapshots_.c_str(), 1);
  }

  static Job SubmitExample(const std::string& name, int steps, const std::string& flags = "") {
    setenv("STEPS", absl::StrCat(steps).c_str(), 1);
    return SubmitFile(flags, absl::StrCat("examples/slurm/", name, ".sbatch"));
  }

  std::string snapshots_;
};

TEST_F(ExamplesTest, PythonDdp_TwoNodes_OneWorld) {
  const Job job = SubmitExample("python_ddp", 0);
  EXPECT_EQ(job.WaitForEnd(), "COMPLETED") << job.Output();
  EXPECT_THAT(job.Output(), HasSubstr("rank 0 of 2 starts on cpu with gloo"));
  EXPECT_THAT(job.Output(), HasSubstr("rank 1 made its step"));
}

TEST_F(ExamplesTest, Tutorial_TwoNodes_OneWorld) {
  const Job job = SubmitExample("tutorial", 0);
  EXPECT_EQ(job.WaitForEnd(), "COMPLETED") << job.Output();
  EXPECT_THAT(job.Output(), HasSubstr("rank 0 of 2 starts on cpu with gloo"));
  EXPECT_THAT(job.Output(), HasSubstr("rank 1 made its step"));
}

TEST_F(ExamplesTest, Gpt_WorkerKilled_ResumesFromSnapshot) {
  const Job job = SubmitExample("gpt", 60);
  ASSERT_TRUE(job.WaitForOutput("snapshot of step 5 saved")) << job.Output();
  Run("kill -9 $(comm -12 <(ip netns pids node2 | sort) <(pgrep -f '^bin/train_gpt' | sort))");
  EXPECT_EQ(job.WaitForEnd(), "COMPLETED") << job.Output();
  EXPECT_THAT(job.Output(), HasSubstr("resumed from the snapshot: step "));
  EXPECT_THAT(job.Output(), HasSubstr("snapshot of step 60 saved"));
}

TEST_F(ExamplesTest, Elastic_NodeLost_SpareTakesItsPlace) {
  const Job job = SubmitExample("elastic", 60);
  ASSERT_TRUE(job.WaitForOutput("snapshot of step 5 saved")) << job.Output();
  // The spare is the node that joined last.
  const int lost = absl::StrContains(job.Output(), "on node2, gloo") ? 2 : 3;
  PowerOff(lost);
  EXPECT_EQ(job.WaitForEnd(), "COMPLETED") << job.Output();
  EXPECT_THAT(job.Output(), HasSubstr(absl::StrCat("on node", 5 - lost, ", gloo")));
  EXPECT_THAT(job.Output(), HasSubstr("resumed from the snapshot: step "));
}

TEST_F(ExamplesTest, Requeue_TimeLimitNear_ResumesFromSnapshot) {
  // SLURM checks twice a minute if the job is near its time limit, and then sends the signal.
  const Job job = SubmitExample("requeue", 100000, "--time=2 --signal=B:USR1@120");
  ASSERT_TRUE(job.WaitForOutput("snapshot of step 5 saved")) << job.Output();
  ASSERT_TRUE(job.WaitForOutput("resumed from the snapshot: step ")) << job.Output();
  EXPECT_NE(job.Field("Restarts"), "0");
}

TEST_F(ExamplesTest, Requeue_WorkerFails_RestartsAndResumes) {
  const Job job = SubmitExample("requeue", 60);
  ASSERT_TRUE(job.WaitForOutput("snapshot of step 5 saved")) << job.Output();
  Run("kill -9 $(comm -12 <(ip netns pids node2 | sort) <(pgrep -f '^bin/train_gpt' | sort))");
  EXPECT_EQ(job.WaitForEnd(), "COMPLETED") << job.Output();
  EXPECT_THAT(job.Output(), HasSubstr("resumed from the snapshot: step "));
  EXPECT_EQ(job.Field("Restarts"), "1");
}

TEST_F(ExamplesTest, Requeue_InvalidFlag_IsNotRestarted) {
  setenv("GPT_FLAGS", "--n-layer=many", 1);
  const Job job = SubmitExample("requeue", 60);
  EXPECT_EQ(job.WaitForEnd(), "FAILED") << job.Output();
  EXPECT_EQ(job.Field("ExitCode"), "2:0");
  EXPECT_THAT(job.Output(), HasSubstr("non-restartable failure (exit code 2)"));
}

TEST_F(ExamplesTest, Array_ElementsOnSameNodes_AreSeparateWorlds) {
  const Job array = SubmitExample("array", 10, "--nodelist=node1,node2 --cpus-per-task=1 --output=%A_%a.out");
  for (int element = 0; element < 3; ++element) {
    const Job job(absl::StrCat(array.id(), "_", element));
    EXPECT_EQ(job.WaitForEnd(), "COMPLETED") << job.Output();
    EXPECT_THAT(job.Output(), AllOf(HasSubstr("rank 1 of 2: pid "), HasSubstr("step   10/10")));
  }
}

}  // namespace
}  // namespace ddprun::testing
