// Allocated GPUs, and nodes on several switches.
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "tests/slurm/slurm_cluster.h"

namespace ddprun::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class ResourcesTest : public SlurmTest {
 protected:
  static void SetUpTestSuite() {
    BringUp({.cpus = {4, 4, 4, 4},
             .gpus = {2, 4, 2, 2},
             .topology = "SwitchName=left Nodes=node1,node3\n"
                         "SwitchName=right Nodes=node2,node4\n"
                         "SwitchName=top Switches=left,right"});
  }
};

constexpr char kWorker[] =
    "--no-python sh -c 'echo rank $RANK of $WORLD_SIZE on $SLURMD_NODENAME, local rank $LOCAL_RANK, GPUs "
    "$CUDA_VISIBLE_DEVICES.'";

TEST_F(ResourcesTest, Gpus_PerNode_OneWorkerEach) {
  const std::string out = RunWell(absl::StrCat("srun -w node1,node3 --gpus-per-node=2 ddprun ", kWorker));
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_THAT(out, HasSubstr(absl::StrCat("rank ", rank, " of 4 on node", rank < 2 ? 1 : 3, ", local rank ", rank % 2,
                                            ", GPUs 0,1.")));
  }
}

TEST_F(ResourcesTest, Gpus_DifferentPerNode_OneWorkerEach) {
  EXPECT_THAT(Completed("-w node[1-2] --gpus=6", absl::StrCat("srun ddprun ", kWorker)),
              AllOf(HasSubstr("rank 1 of 6 on node1, local rank 1, GPUs 0,1."),
                    HasSubstr("rank 2 of 6 on node2, local rank 0, GPUs 0,1,2,3."),
                    HasSubstr("rank 5 of 6 on node2, local rank 3, GPUs 0,1,2,3.")));
}

TEST_F(ResourcesTest, Gpus_NoneOrNprocGiven_OneWorker) {
  EXPECT_THAT(RunWell(absl::StrCat("srun -N2 ddprun ", kWorker)), HasSubstr("rank 1 of 2 on "));
  EXPECT_THAT(RunWell(absl::StrCat("srun -N1 -w node1 --gpus-per-node=2 ddprun --nproc-per-node=1 ", kWorker)),
              HasSubstr("rank 0 of 1 on node1"));
}

TEST_F(ResourcesTest, Gpus_FewerThanWorkersOrTaskPerGpu_ErrorSaysWhatToGiveSrun) {
  const std::pair<const char*, const char*> kCases[] = {
      {"srun -N1 --gpus-per-task=1 ddprun --nproc-per-node=8 --no-python echo world",
       "--nproc-per-node=8, but SLURM gave this task 1 GPU of the node (SLURM_GPUS_ON_NODE=1): give srun "
       "--gpus-per-node=8 --ntasks-per-node=1"},
      {"srun -N1 -n2 --gpus-per-task=1 ddprun --no-python echo world",
       "write srun --ntasks=1 --ntasks-per-node=1 ddprun ..."}};
  for (const auto& [command, line] : kCases) {
    const Ended ended = Run(command);
    EXPECT_EQ(ended.code, 2) << command;
    EXPECT_THAT(ended.err, HasSubstr(line));
  }
}

// Without the switch's name as prefix, node2 would come before node3.
TEST_F(ResourcesTest, Topology_TwoSwitches_NeighboursHaveAdjacentRanks) {
  const std::string out = RunWell(absl::StrCat("srun -N4 ddprun ", kWorker));
  const char* const order[] = {"node1", "node3", "node2", "node4"};
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_THAT(out, HasSubstr(absl::StrCat("rank ", rank, " of 4 on ", order[rank], ",")));
  }
}

}  // namespace
}  // namespace ddprun::testing
