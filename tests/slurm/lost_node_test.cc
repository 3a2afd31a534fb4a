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

  // Kills the launcher on node2.
  static void KillLauncher() {
    Run("kill -9 $(comm -12 <(ip netns pids node2 | sort) <(pgrep -f bin/ddprun | sort) | sort -n | head -n 1)");
  }
};

constexpr char kElastic[] = "--rdzv-conf=last_call_timeout=1";

TEST_F(LostNodeTest, TaskKilled_MinMax_ContinuesSmaller) {
  const Job job = Training("-N2", absl::StrCat("--nnodes=1:2 ", kElastic), "STEPS=60");
  KillLauncher();
  ASSERT_TRUE(job.WaitForOutput("rank 0 of 1 on node1, round 2: done at step 60")) << job.Output();
  // srun reports the killed launcher's result.
  EXPECT_EQ(job.WaitForEnd(), "FAILED");
  EXPECT_EQ(job.Field("ExitCode"), "137:0") << job.Output();
}

TEST_F(LostNodeTest, TaskKilled_FixedCount_FailsAndNamesNode) {
  const Job job = Training("-N2", "", "STEPS=100000");
  KillLauncher();
  EXPECT_EQ(job.WaitForEnd(), "FAILED");
  EXPECT_EQ(job.Field("ExitCode"), "137:0") << job.Output();
  EXPECT_THAT(job.Output(), HasSubstr("node node2 lost: disconnected"));
}

TEST_F(LostNodeTest, NodeSetDown_FixedCount_OthersSaveAndJobEnds) {
  const Job job = Training("-N2 --no-requeue", "", "STEPS=100000");
  Run("scontrol update nodename=node2 state=down reason=test");
  EXPECT_EQ(job.WaitForEnd(), "NODE_FAIL");
  EXPECT_EQ(job.Field("ExitCode"), "0:15");
  EXPECT_TRUE(Eventually([&] { return absl::StrContains(job.Output(), "on node1, round 1: TERM"); })) << job.Output();
}

TEST_F(LostNodeTest, NodeSetDown_NoKillMinMax_ContinuesSmaller) {
  const Job job =
      Training("-N2 --no-kill --no-requeue", absl::StrCat("--nnodes=1:2 ", kElastic), "STEPS=60", "--no-kill");
  Run("scontrol update nodename=node2 state=down reason=test");
  EXPECT_TRUE(job.WaitForOutput("rank 0 of 1 on node1, round 2: done at step 60")) << job.Output();
}

TEST_F(LostNodeTest, PowerOff_NoKillWithSpare_SpareTakesOver) {
  const Job job = Training("-N3 --no-kill --no-requeue", "--nnodes=2", "STEPS=80", "--no-kill");
  // The node that joined last is the spare, which may be any.
  const int lost = absl::StrContains(job.Output(), "of 2 on node2, round 1: begins") ? 2 : 3;
  PowerOff(lost);
  EXPECT_TRUE(job.WaitForOutput(absl::StrCat("of 2 on node", 5 - lost, ", round 2: done at step 80"))) << job.Output();
  EXPECT_EQ(job.WaitForEnd(), "COMPLETED") << job.Output();
}

TEST_F(LostNodeTest, PowerOff_NoKillFixedCount_NamesMissingNodeAndFails) {
  const Job job = Training("-N2 --no-kill --no-requeue", "--rdzv-conf=join_timeout=12", "STEPS=100000", "--no-kill");
  PowerOff(2);
  EXPECT_TRUE(job.WaitForOutput("waiting for node2; 1 of 2 joined (joined: node1)")) << job.Output();
  EXPECT_EQ(job.WaitForEnd(), "FAILED");
  EXPECT_EQ(job.Field("ExitCode"), "1:0") << job.Output();
  EXPECT_THAT(job.Output(),
              HasSubstr("timed out: 1 of 2 nodes joined within 12s: node1 (node node2 lost: no heartbeat"));
}

TEST_F(LostNodeTest, PowerOff_Requeue_RestartsOnOtherNodes) {
  const Job job = Training("-N2 --requeue", "", "STEPS=60");
  PowerOff(2);
  EXPECT_TRUE(job.WaitForOutput("on node3, round 1: done at step 60")) << job.Output();
  EXPECT_EQ(job.WaitForEnd(), "COMPLETED") << job.Output();
  EXPECT_EQ(job.Field("Restarts"), "1");
}

}  // namespace
}  // namespace ddprun::testing
