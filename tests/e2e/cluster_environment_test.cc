// Launchers configured by the variables of SLURM, as in a step of two nodes, or of other platforms, all on this host.
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <regex>

#include "tests/e2e/launch.h"

namespace ddprun::testing {
namespace {

using Environment = std::map<std::string, std::string>;

std::string Hostname() {
  char name[256] = {};
  EXPECT_EQ(gethostname(name, sizeof(name) - 1), 0);
  return name;
}

// Variables that srun -N2 sets for the task on node `index`, and `more`. The first node hosts the server and has this
// host's name.
Environment Step(int index, const Environment& more = {}) {
  const std::string nodes = Hostname() + ",other-node";
  Environment environment = {{"SLURM_JOB_ID", absl::StrCat(getpid())},
                             {"SLURM_STEP_ID", "0"},
                             {"SLURM_JOB_NODELIST", nodes},
                             {"SLURM_STEP_NODELIST", nodes},
                             {"SLURM_STEP_NUM_NODES", "2"},
                             {"SLURM_NNODES", "2"},
                             {"SLURM_STEP_TASKS_PER_NODE", "1(x2)"},
                             {"SLURM_NODEID", absl::StrCat(index)},
                             {"SLURMD_NODENAME", index == 0 ? Hostname() : "other-node"},
                             {"SLURM_CONF", "/no/such/slurm.conf"}};
  for (const auto& [name, value] : more) environment[name] = value;
  return environment;
}

TEST(ClusterEnvironmentTest, SlurmStep_TwoNodes_NeedsNoFlags) {
  const std::string script = std::string(kSayRank) + "echo id=$TORCHELASTIC_RUN_ID";
  Launcher b(WithShell({}, script), Step(1)), a(WithShell({}, script), Step(0));
  ExpectEnd({&a, &b});
  EXPECT_THAT(a.Out(), HasSubstr("rank=0/2"));
  EXPECT_THAT(b.Out(), HasSubstr("rank=1/2")) << "in the order of the list, not of joining";
  EXPECT_NE(b.Out().find(absl::StrCat("id=", getpid(), "\n")), std::string::npos) << b.Out();
  EXPECT_NE(b.Err().find("other-node ("), std::string::npos) << "SLURM's name for the node: " << b.Err();
}

// Two launchers with these environments, in this order of nodes, train as one job.
void ExpectOneJob(const Environment& first, const Environment& second, const std::string& id) {
  const std::string script = std::string(kSayRank) + "echo id=$TORCHELASTIC_RUN_ID";
  Launcher b(WithShell({}, script), second), a(WithShell({}, script), first);
  ExpectEnd({&a, &b});
  EXPECT_THAT(a.Out(), AllOf(HasSubstr("rank=0/2"), HasSubstr("id=" + id)));
  EXPECT_THAT(b.Out(), AllOf(HasSubstr("rank=1/2"), HasSubstr("id=" + id)));
}

TEST(ClusterEnvironmentTest, SkyPilotTask_TwoNodes_NeedsNoFlags) {
  const std::string id = absl::StrCat("sky-2023-07-06-21-18-31-563597_myclus_", getpid());
  const auto node = [&](int rank) {
    return Environment{{"SKYPILOT_NODE_IPS", "127.0.0.1\n127.0.0.2"},
                       {"SKYPILOT_NODE_RANK", absl::StrCat(rank)},
                       {"SKYPILOT_NUM_NODES", "2"},
                       {"SKYPILOT_NUM_GPUS_PER_NODE", "0"},
                       {"SKYPILOT_TASK_ID", id}};
  };
  ExpectOneJob(node(0), node(1), id);
}

TEST(ClusterEnvironmentTest, PbsJob_MpiexecOnTwoHosts_RanksFromMpiexecMasterFromPbs) {
  const TempDir dir;
  const std::string id = absl::StrCat(getpid(), ".pbs01");
  std::ofstream(dir.File("nodes")) << Hostname() + "\n" + Hostname() + "\nother-node\nother-node\n";
  const auto node = [&](int rank) {
    return Environment{{"PBS_JOBID", id},
                       {"PBS_NODEFILE", dir.File("nodes")},
                       {"PMI_RANK", absl::StrCat(rank)},
                       {"PMI_SIZE", "2"},
                       {"MPI_LOCALNRANKS", "1"}};
  };
  ExpectOneJob(node(0), node(1), id);
}

TEST(ClusterEnvironmentTest, PbsJob_ScriptOnOneOfTwoHosts_TrainsOnItAndWarns) {
  const TempDir dir;
  std::ofstream(dir.File("nodes")) << "node1\nnode2\n";
  const Environment script = {
      {"PBS_JOBID", "77.pbs01"}, {"PBS_NODEFILE", dir.File("nodes")}, {"PBS_NODENUM", "0"}, {"PBS_TASKNUM", "1"}};
  Finished launcher(0, WithShell({}, kSayRank), script);
  EXPECT_THAT(launcher.Out(), HasSubstr("rank=0/1"));
  EXPECT_THAT(launcher.Err(), AllOf(HasSubstr("PBS gave this job 2 nodes"), HasSubstr("--hosts=@$PBS_NODEFILE")));
  EXPECT_EQ(Lines(launcher.Err()), 1) << launcher.Err();
}

TEST(ClusterEnvironmentTest, SlurmStep_TutorialsFlags_Work) {
  const std::vector<std::string> flags = {"--nnodes",         "2",
                                          "--nproc_per_node", "2",
                                          "--rdzv_id",        "123",
                                          "--rdzv_backend",   "c10d",
                                          "--rdzv_endpoint",  absl::StrCat(Hostname(), ":", FreePort())};
  Launcher a(WithShell(flags, kSayRank), Step(0)), b(WithShell(flags, kSayRank), Step(1));
  ExpectEnd({&a, &b});
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(Count(a.Out() + b.Out(), absl::StrCat("rank=", rank, "/4")), 1) << a.Out() << b.Out();
  }
}

TEST(ClusterEnvironmentTest, SlurmStep_MissingNode_IsNamed) {
  Finished a(1, WithShell({"--rdzv-conf=join_timeout=1"}, "exit 0"), Step(0));
  EXPECT_THAT(a.Err(), HasSubstr("timed out waiting for other-node"));
  const std::string said = std::regex_replace(a.Err(), std::regex("\\s+"), " ");  // the summary breaks lines
  EXPECT_THAT(said, AllOf(HasSubstr("timed out: 1 of 2 nodes joined within 1s: " + Hostname()),
                          HasSubstr("Hint: start ddprun on other-node with the same --rdzv-endpoint=" + Hostname())));
}

TEST(ClusterEnvironmentTest, Standalone_InSlurmStep_TrainsAloneAndWarns) {
  Finished a(0, WithShell({"--standalone"}, kSayRank), Step(1));
  EXPECT_THAT(a.Out(), HasSubstr("rank=0/1"));
  EXPECT_THAT(a.Err(), HasSubstr("each of the 2 nodes"));
}

TEST(ClusterEnvironmentTest, ShowConfig_SlurmStep_NamesOriginOfEachSetting) {
  Finished a(0, {"--show-config"}, Step(1));
  for (const char* text : {"SLURM_STEP_NUM_NODES=2\n", "this launcher connects to it",
                           "SLURM_STEP_NODELIST=", "expected hosts", "kill wait"}) {
    EXPECT_NE(a.Out().find(text), std::string::npos) << text << " in\n" << a.Out();
  }
  EXPECT_EQ(a.Err(), "");
}

TEST(ClusterEnvironmentTest, Environment_Contradictory_OneLineAndExit2) {
  struct Case {
    std::vector<std::string> flags;
    Environment more;
    const char* words;
  };
  // One each of the environment, of the flags together with it, of the workers' GPUs.
  const std::vector<Case> cases = {
      {{}, {{"SLURM_STEP_NODELIST", "node[1-"}}, "SLURM_STEP_NODELIST"},
      {{"--nnodes=3"}, {}, "there are 2 nodes"},
      {{"--nproc-per-node=8"}, {{"SLURM_GPUS_ON_NODE", "8"}, {"CUDA_VISIBLE_DEVICES", "0"}}, "CUDA_VISIBLE_DEVICES=0"},
  };
  for (const Case& bad : cases) {
    Finished launcher(2, WithShell(bad.flags, "exit 0"), Step(0, bad.more));
    EXPECT_EQ(Lines(launcher.Err()), 1) << launcher.Err();
    EXPECT_NE(launcher.Err().find(bad.words), std::string::npos) << bad.words << " in " << launcher.Err();
  }
}

TEST(ClusterEnvironmentTest, Environment_MalformedButFlagsComplete_Warns) {
  Finished launcher(0, WithShell({"--standalone"}, "exit 0"), Step(0, {{"SLURM_STEP_NODELIST", "node[1-"}}));
  EXPECT_THAT(launcher.Err(), HasSubstr("SLURM_STEP_NODELIST"));
  EXPECT_EQ(Lines(launcher.Err()), 1) << launcher.Err();
}

}  // namespace
}  // namespace ddprun::testing
