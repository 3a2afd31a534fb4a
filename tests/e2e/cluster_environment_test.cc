// Launchers configured by SLURM's variables, as in a step of two nodes; both run on this host.
#include <gtest/gtest.h>
#include <unistd.h>

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

std::vector<std::string> Shell(std::vector<std::string> flags, const std::string& script) {
  for (const char* word : {"--no-python", "sh", "-c"}) flags.push_back(word);
  flags.push_back(script);
  return flags;
}

TEST(ClusterEnvironmentTest, StepOfTwoNodes_NeedsNoFlags) {
  const std::string script = std::string(kSayRank) + "echo id=$TORCHELASTIC_RUN_ID";
  Launcher b(Shell({}, script), Step(1)), a(Shell({}, script), Step(0));
  ExpectEnd({&a, &b});
  EXPECT_THAT(a.Out(), HasSubstr("rank=0/2"));
  EXPECT_THAT(b.Out(), HasSubstr("rank=1/2")) << "in the order of the list, not of joining";
  EXPECT_THAT(b.Out(), HasSubstr(absl::StrCat("id=", getpid(), "\n")));
  EXPECT_NE(b.Err().find("other-node ("), std::string::npos) << "SLURM's name for the node: " << b.Err();
}

TEST(ClusterEnvironmentTest, NodeThatNeverComes_IsNamed) {
  Finished a(1, Shell({"--rdzv-conf=join_timeout=1"}, "exit 0"), Step(0));
  EXPECT_THAT(a.Err(), HasSubstr("timed out waiting for other-node"));
}

TEST(ClusterEnvironmentTest, WhatCantBeMeant_IsOneLineAndExitTwo) {
  const std::pair<const char*, const char*> cases[] = {{"SLURM_STEP_NODELIST", "node[1-"}, {"SLURM_STEP_ID", ""}};
  for (const auto& [name, value] : cases) {
    Finished launcher(2, Shell({}, "exit 0"), Step(0, {{name, value}}));
    EXPECT_EQ(Lines(launcher.Err()), 1) << launcher.Err();
    EXPECT_THAT(launcher.Err(), HasSubstr(*value == '\0' ? "srun" : name));
  }
}

}  // namespace
}  // namespace ddprun::testing
