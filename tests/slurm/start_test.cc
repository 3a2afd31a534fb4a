// Start of a job: srun starts one ddprun per node, without flags.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "tests/e2e/launch.h"
#include "tests/slurm/slurm_cluster.h"

namespace ddprun::testing {
namespace {

using ::testing::ContainsRegex;

class StartTest : public SlurmTest {
 protected:
  static void SetUpTestSuite() { BringUp({.cpus = {4, 4, 4}}); }
};

// Prints its ranks in one line.
constexpr char kWorker[] =
    "--no-python sh -c 'echo rank $RANK of $WORLD_SIZE on $SLURMD_NODENAME, node $GROUP_RANK of $GROUP_WORLD_SIZE, "
    "run $TORCHELASTIC_RUN_ID.'";

// ---- Without flags ----

TEST_F(StartTest, Srun_TwoNodes_OneWorld) {
  const struct {
    const char* command;  // WORKER stands for kWorker
    std::vector<const char*> out;
  } kCases[] = {
      {"srun -N2 ddprun WORKER", {"rank 0 of 2 on node1, node 0 of 2", "rank 1 of 2 on node2, node 1 of 2"}},
      {"srun -N3 ddprun --nproc-per-node=2 WORKER",
       {"rank 0 of 6 on node1", "rank 1 of 6 on node1", "rank 2 of 6 on node2", "rank 3 of 6 on node2",
        "rank 4 of 6 on node3", "rank 5 of 6 on node3"}},
      // The ranks follow the step's list.
      {"srun -N2 -m arbitrary -w node3,node1 ddprun WORKER",
       {"rank 0 of 2 on node1, node 0 of 2", "rank 1 of 2 on node3, node 1 of 2"}},
      // The nodes of the step before may not be free yet.
      {"salloc -w node1,node2 srun ddprun WORKER", {"rank 1 of 2 on node2"}},
      {"srun -w node1 -c1 ddprun WORKER : -w node2 -c2 ddprun WORKER",
       {"rank 0 of 2 on node1, node 0 of 2", "rank 1 of 2 on node2, node 1 of 2"}},
  };
  for (const auto& [command, words] : kCases) {
    SCOPED_TRACE(command);
    const std::string out = RunWell(absl::StrReplaceAll(command, {{"WORKER", kWorker}}));
    for (const char* word : words) EXPECT_THAT(out, HasSubstr(word));
  }
}

TEST_F(StartTest, Sbatch_SrunInScript_OneWorldNamedAfterTheJob) {
  const Job job = Submit("-N2", absl::StrCat("srun ddprun ", kWorker));
  EXPECT_EQ(job.WaitForEnd(), "COMPLETED") << job.Output();
  EXPECT_THAT(job.Output(), HasSubstr(absl::StrCat("rank 0 of 2 on node1, node 0 of 2, run ", job.id(), ".")));
  EXPECT_THAT(job.Output(), HasSubstr(absl::StrCat("rank 1 of 2 on node2, node 1 of 2, run ", job.id(), ".")));
}

TEST_F(StartTest, Sbatch_ForkedWorkers_OneWorldAndProcessesEnd) {
  const std::string script =
      "import os; os.write(1, 'rank {RANK} of {WORLD_SIZE} on {SLURMD_NODENAME}\\n'.format(**os.environ).encode())";
  const std::string out = Completed("-N2", absl::StrCat("echo \"", script, "\" > forked.py\n",
                                                        "srun ddprun --nproc-per-node=2 --preload=json forked.py"));
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_THAT(out, HasSubstr(absl::StrCat("rank ", rank, " of 4 on node", rank / 2 + 1)));
  }
  EXPECT_THAT(out, Not(HasSubstr("--preload")));
}

TEST_F(StartTest, BatchScript_OneNode_Trains) {
  EXPECT_THAT(Completed("-N2", absl::StrCat("srun -N1 -n1 -w node2 ddprun ", kWorker)),
              HasSubstr("rank 0 of 1 on node2, node 0 of 1"));
  EXPECT_THAT(Completed("-N1 -w node3", absl::StrCat("ddprun --nproc-per-node=2 ", kWorker)),
              HasSubstr("rank 1 of 2 on node3"))
      << "needs no srun";
}

// Each of the two waits until the other has begun, so that they run at the same time.
constexpr char kMeetTheOther[] = R"(--no-python sh -c '
  echo rank $RANK of $WORLD_SIZE, run $TORCHELASTIC_RUN_ID.
  touch here.$TORCHELASTIC_RUN_ID
  until [ $(ls | grep -c "^here\.") -ge 2 ]; do sleep 0.1; done')";

TEST_F(StartTest, Steps_Concurrent_AreSeparateWorlds) {
  const Job job =
      Submit("-N2 --ntasks-per-node=2",
             absl::StrCat("mkdir steps; cd steps; for i in 0 1; do srun -n2 --ntasks-per-node=1 --exact ddprun ",
                          kMeetTheOther, " & done; wait"));
  EXPECT_EQ(job.WaitForEnd(), "COMPLETED") << job.Output();
  for (const std::string& run : {job.id(), absl::StrCat(job.id(), ".1")}) {
    EXPECT_THAT(job.Output(), HasSubstr(absl::StrCat("rank 0 of 2, run ", run, ".\n")));
    EXPECT_THAT(job.Output(), HasSubstr(absl::StrCat("rank 1 of 2, run ", run, ".\n")));
  }
}

TEST_F(StartTest, Jobs_OnSameNodes_AreSeparateWorlds) {
  const std::string script = absl::StrCat("mkdir -p jobs; cd jobs; srun ddprun ", kMeetTheOther);
  const Job one = Submit("-N2 -c1 -w node1,node2", script), other = Submit("-N2 -c1 -w node1,node2", script);
  for (const Job& job : {one, other}) {
    EXPECT_EQ(job.WaitForEnd(), "COMPLETED") << job.Output();
    EXPECT_THAT(job.Output(), HasSubstr(absl::StrCat("rank 0 of 2, run ", job.id(), ".\n")));
    EXPECT_THAT(job.Output(), HasSubstr(absl::StrCat("rank 1 of 2, run ", job.id(), ".\n")));
  }
}

TEST_F(StartTest, Array_Elements_AreSeparateWorlds) {
  const Job array = Submit("-N2 -c1 --array=0-1 --output=%A_%a.out", absl::StrCat("srun ddprun ", kWorker));
  for (const char* element : {"0", "1"}) {
    const Job job(absl::StrCat(array.id(), "_", element));
    EXPECT_EQ(job.WaitForEnd(), "COMPLETED") << job.Output();
    EXPECT_THAT(job.Output(), AllOf(HasSubstr("rank 0 of 2 on node1"), HasSubstr("rank 1 of 2 on node2")));
  }
}

TEST_F(StartTest, Flags_Explicit_OverrideSlurm) {
  EXPECT_THAT(RunWell(absl::StrCat("srun -N2 ddprun --nnodes=1 --rdzv-id=mine ", kWorker)),
              AllOf(HasSubstr("rank 0 of 1 on node1, node 0 of 1, run mine."),
                    HasSubstr("rank 0 of 1 on node2, node 0 of 1, run mine.")));
}

// The tutorial's command with ddprun instead of torchrun.
TEST_F(StartTest, Srun_TutorialsFlags_OneWorld) {
  const std::string script = Folder() + "/torchrun_script.sh";
  Run(absl::StrCat("cat >", script,
                   " <<'END'\n#!/bin/bash\nddprun --nnodes=2 --nproc_per_node=2 --rdzv_id=100 --rdzv_backend=c10d "
                   "--rdzv_endpoint=$MASTER_ADDR:29400 ",
                   kWorker, "\nEND\nchmod +x ", script));
  const std::string out = Completed("-N2",
                                    "export MASTER_ADDR=$(scontrol show hostname ${SLURM_NODELIST} | head -n 1)\n"
                                    "srun --nodes=2 ./torchrun_script.sh");
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_THAT(out, HasSubstr(absl::StrCat("rank ", rank, " of 4 on node", rank / 2 + 1)));
  }
}

// It runs on the same cluster and knows the job's id and endpoint, but srun did not start it, so it has no credential.
TEST_F(StartTest, Stranger_OnTheCluster_IsRefusedAndJobContinues) {
  const Job job = Submit("-N2",
                         "srun ddprun --rdzv-id=mine --rdzv-endpoint=node1:29500 --no-python sh -c "
                         "'echo runs; until [ -e go.on ]; do sleep 0.1; done'");
  ASSERT_TRUE(job.WaitForOutput("runs", 2)) << job.Output();
  const Ended stranger =
      Run("ddprun --nnodes=2 --rdzv-id=mine --rdzv-endpoint=node1:29500 --rdzv-conf=is_host=false --no-python echo in");
  EXPECT_EQ(stranger.code, 1);
  EXPECT_EQ(stranger.out, "");
  EXPECT_THAT(stranger.err, HasSubstr("this server requires a MUNGE credential of its own user"));
  Run("touch go.on");
  EXPECT_EQ(job.WaitForEnd(), "COMPLETED") << job.Output();
}

TEST_F(StartTest, ShowConfig_InJob_NamesOriginOfEachSetting) {
  const std::string out = RunWell("srun -N2 ddprun --show-config --nproc-per-node=2 true");
  EXPECT_THAT(out, ContainsRegex("nnodes +2 +SLURM_STEP_NUM_NODES=2\n"));
  EXPECT_THAT(out, ContainsRegex("nproc-per-node +2 +--nproc-per-node=2\n"));
  EXPECT_THAT(out, ContainsRegex("rdzv-endpoint +node1:2[0-9]{4} +SLURM_STEP_NODELIST=node\\[1-2\\]"));
  EXPECT_THAT(out, ContainsRegex("kill wait +5s"));
  EXPECT_THAT(out, ContainsRegex("credentials +MUNGE, where it works +step 0 of SLURM job"));
}

// ---- Mistakes: one line with the correct command, and exit code 2 ----

struct Mistake {
  const char* name;
  const char* command;
  const char* line;  // part of ddprun's message
};

class MistakeTest : public StartTest, public ::testing::WithParamInterface<Mistake> {};

TEST_P(MistakeTest, Flags_Mistake_OneLine) {
  const Ended ended = Run(GetParam().command);
  EXPECT_EQ(ended.code, 2) << ended.out << ended.err;
  EXPECT_THAT(ended.err, HasSubstr(GetParam().line));
  EXPECT_EQ(ended.out, "");
}

INSTANTIATE_TEST_SUITE_P(
    Start, MistakeTest,
    ::testing::Values(
        Mistake{"SeveralTasksPerNode", "srun -N2 --ntasks-per-node=2 ddprun --no-python echo world",
                "write srun --ntasks=2 --ntasks-per-node=1 ddprun ..."},
        Mistake{"SeveralTasksOnOneNodeOfTwo", "srun -N2 -n3 ddprun --no-python echo world",
                "SLURM started 2 tasks on node1 (SLURM_STEP_TASKS_PER_NODE=2,1): write srun --ntasks=2"},
        Mistake{"SallocWithoutSrun", "salloc -N2 ddprun --no-python echo world",
                "this machine is not a node of SLURM job"},
        Mistake{"MoreNodesThanThereAre", "srun -N2 ddprun --nnodes=3 --no-python echo world",
                "--nnodes=3, but there are 2 nodes (SLURM_STEP_NUM_NODES=2)"},
        Mistake{"MinAboveTheNodesThereAre", "srun -N2 ddprun --nnodes=3:4 --no-python echo world",
                "--nnodes=3:4, but there are 2 nodes (SLURM_STEP_NUM_NODES=2)"},
        Mistake{"LocalhostAsEndpoint", "srun -N2 ddprun --rdzv-endpoint=localhost:29400 --no-python echo world",
                "so each node would start a separate job: leave the flag out"},
        Mistake{"LocalhostAsMaster", "srun -N2 ddprun --nnodes=2 --master-addr=localhost --no-python echo world",
                "so each node would start a separate job: leave the flag out"},
        Mistake{"UnknownHeadNode", "srun -N2 ddprun --rdzv-endpoint=node9:29400 --no-python echo world",
                "--rdzv-endpoint=node9:29400: can't resolve host 'node9'"},
        Mistake{"BrokenVariable", "srun -N2 env SLURM_STEP_NODELIST=node[1- ddprun --no-python echo world",
                "SLURM_STEP_NODELIST=node[1-: not a host list"}),
    [](const ::testing::TestParamInfo<Mistake>& info) { return info.param.name; });

TEST_F(StartTest, BatchScript_SeveralNodesWithoutSrun_OneLine) {
  const Job job = Submit("-N2", "ddprun --no-python echo world");
  EXPECT_EQ(job.WaitForEnd(), "FAILED") << job.Output();
  EXPECT_EQ(job.Field("ExitCode"), "2:0");
  EXPECT_THAT(job.Output(), HasSubstr("one of its 2 nodes: write srun --ntasks=2 --ntasks-per-node=1 ddprun ..."));
  EXPECT_EQ(Lines(job.Output()), 1) << job.Output();
}

TEST_F(StartTest, Standalone_TwoNodes_WarnsOfTwoWorlds) {
  const Ended ended = Run(absl::StrCat("srun -N2 ddprun --standalone ", kWorker));
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("each of the 2 nodes (SLURM_STEP_NUM_NODES=2) runs as a separate job"));
}

// The endpoint is on a machine outside the job, where no server runs.
TEST_F(StartTest, HeadNode_NotInJob_NamesWhereItLooked) {
  const Ended ended = Run("srun -N2 ddprun --rdzv-endpoint=head:29400 --rdzv-conf=join_timeout=1 --no-python true");
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.err,
              HasSubstr("no rendezvous server at head:29400 for 1s; node1 (10.77.0.1): tried 10.77.0.254:29400: "));
}

}  // namespace
}  // namespace ddprun::testing
