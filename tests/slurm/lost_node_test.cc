// A node of the allocation is lost.
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "tests/e2e/launch.h"
#include "tests/slurm/slurm_cluster.h"

namespace ddprun::testing {
namespace {

class LostNodeTest : public SlurmTest {
 protected:
  static void SetUpTestSuite() { BringUp({.cpus = {2, 2, 2}, .slurmd_timeout = absl::Seconds(5)}); }

  static Job Train(const std::string& sbatch_flags, const std::string& srun_flags, const std::string& ddprun_flags,
                   const std::string& variables) {
    static int jobs = 0;
    const std::string folder = absl::StrCat(Folder(), "/train", ++jobs);
    Run(absl::StrCat("mkdir ", folder));
    return Submit(absl::StrCat("--open-mode=append --chdir=", folder, " ", sbatch_flags),
                  absl::StrCat("export ", variables, "; srun ", srun_flags, " ddprun ", ddprun_flags,
                               " --no-python trainer ${STEPS-}; code=$?; echo srun ended with "
                               "$code; exit $code"));
  }

  // The launcher on node2.
  static void KillLauncher() {
    Run("kill -9 $(comm -12 <(ip netns pids node2 | sort) <(pgrep -f bin/ddprun | sort) | sort -n | head -n 1)");
  }
};

constexpr char kElastic[] = "--rdzv-conf=last_call_timeout=1";

TEST_F(LostNodeTest, TaskKilled_MinMax_GoesOnSmaller) {
  const Job job = Train("-N2", "", absl::StrCat("--nnodes=1:2 ", kElastic), "STEPS=60");
  ASSERT_TRUE(job.WaitForOutput("begins at step 0", 2)) << job.Output();
  KillLauncher();
  ASSERT_TRUE(job.WaitForOutput("rank 0 of 1 on node1, round 2: done at step 60")) << job.Output();
  // srun reports the killed launcher's result.
  EXPECT_EQ(job.WaitForEnd(), "FAILED");
  EXPECT_EQ(job.Field("ExitCode"), "137:0") << job.Output();
}

TEST_F(LostNodeTest, TaskKilled_FixedCount_FailsAtOnceAndNamesTheNode) {
  const Job job = Train("-N2", "", "", "STEPS=100000");
  ASSERT_TRUE(job.WaitForOutput("begins at step 0", 2)) << job.Output();
  KillLauncher();
  EXPECT_EQ(job.WaitForEnd(), "FAILED");
  EXPECT_EQ(job.Field("ExitCode"), "137:0") << job.Output();
  EXPECT_THAT(job.Output(), HasSubstr("node node2 lost: disconnected"));
}

TEST_F(LostNodeTest, NodeSetDown_TheOthersSaveAndTheJobEnds) {
  const Job job = Train("-N2 --no-requeue", "", "", "STEPS=100000");
  ASSERT_TRUE(job.WaitForOutput("begins at step 0", 2)) << job.Output();
  Run("scontrol update nodename=node2 state=down reason=test");
  EXPECT_EQ(job.WaitForEnd(), "NODE_FAIL");
  EXPECT_EQ(job.Field("ExitCode"), "0:15");
  EXPECT_TRUE(Eventually([&] { return absl::StrContains(job.Output(), "on node1, round 1: TERM"); })) << job.Output();
}

TEST_F(LostNodeTest, NodeSetDown_NoKill_MinMax_GoesOnSmaller) {
  const Job job = Train("-N2 --no-kill --no-requeue", "--no-kill", absl::StrCat("--nnodes=1:2 ", kElastic), "STEPS=60");
  ASSERT_TRUE(job.WaitForOutput("begins at step 0", 2)) << job.Output();
  Run("scontrol update nodename=node2 state=down reason=test");
  EXPECT_TRUE(job.WaitForOutput("rank 0 of 1 on node1, round 2: done at step 60")) << job.Output();
}

TEST_F(LostNodeTest, PowerOff_NoKill_SpareTakesOver) {
  const Job job = Train("-N3 --no-kill --no-requeue", "--no-kill", "--nnodes=2", "STEPS=80");
  ASSERT_TRUE(job.WaitForOutput("begins at step 0", 2)) << job.Output();
  // The node that joined last is the spare, which may be any.
  const int lost = absl::StrContains(job.Output(), "of 2 on node2, round 1: begins") ? 2 : 3;
  PowerOff(lost);
  EXPECT_TRUE(job.WaitForOutput(absl::StrCat("of 2 on node", 5 - lost, ", round 2: done at step 80"))) << job.Output();
  EXPECT_EQ(job.WaitForEnd(), "COMPLETED") << job.Output();
}

TEST_F(LostNodeTest, PowerOff_NoKill_FixedCount_SaysForWhomItWaitsAndFails) {
  const Job job = Train("-N2 --no-kill --no-requeue", "--no-kill", "--rdzv-conf=join_timeout=12", "STEPS=100000");
  ASSERT_TRUE(job.WaitForOutput("begins at step 0", 2)) << job.Output();
  PowerOff(2);
  EXPECT_TRUE(job.WaitForOutput("waiting for node2; 1 of 2 joined (joined: node1)")) << job.Output();
  EXPECT_EQ(job.WaitForEnd(), "FAILED");
  EXPECT_EQ(job.Field("ExitCode"), "1:0") << job.Output();
  EXPECT_THAT(job.Output(),
              HasSubstr("timed out: 1 of 2 nodes joined within 12s: node1 (node node2 lost: no heartbeat"));
}

TEST_F(LostNodeTest, PowerOff_Requeue_StartsAgainOnOtherNodes) {
  const Job job = Train("-N2 --requeue", "", "", "STEPS=60");
  ASSERT_TRUE(job.WaitForOutput("begins at step 0", 2)) << job.Output();
  PowerOff(2);
  EXPECT_TRUE(job.WaitForOutput("on node3, round 1: done at step 60")) << job.Output();
  EXPECT_EQ(job.WaitForEnd(), "COMPLETED") << job.Output();
  EXPECT_EQ(job.Field("Restarts"), "1");
}

}  // namespace
}  // namespace ddprun::testing
