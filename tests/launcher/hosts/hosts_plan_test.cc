#include "launcher/hosts/hosts_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace ddprun::launcher {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using Words = std::vector<std::string>;

absl::StatusOr<HostsPlan> Plan(Words flags, const Words& environment = {},
                               const Words& script = {"train.py", "--lr", "1"}) {
  flags.insert(flags.end(), script.begin(), script.end());
  DDPRUN_ASSIGN_OR_RETURN(const ParseResult parsed,
                          ParseOptions(flags, [](const std::string&) { return std::nullopt; }));
  const auto& options = std::get<ParsedOptions>(parsed);
  Options here = options.options;
  here.nnodes = {};
  here.node_rank = {};
  DDPRUN_ASSIGN_OR_RETURN(const LaunchConfig config, Resolve(here, HostFacts{.cpus = 4, .random_id = "id"}));
  HostsInput input{.hosts = here.hosts, .folder = "/work", .environment = environment, .python = "/env/python"};
  input.random_job_id = "j";
  input.random_token = "t";
  input.random_start = "s";
  return PlanHosts(options, config, std::move(input));
}

HostsPlan Must(Words flags, const Words& environment = {}) {
  absl::StatusOr<HostsPlan> plan = Plan(std::move(flags), environment);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.ok() ? *std::move(plan) : HostsPlan();
}

TEST(HostsPlan, FlagsOfLaunchers_AreThoseOfTheUser_WithoutTheOwn) {
  const HostsPlan plan = Must({"--hosts=a,b:2", "--env=X=1", "--max-restarts=3", "--rdzv-id=night"});
  EXPECT_THAT(plan.flags, ElementsAre("--max-restarts=3", "--tee=3", "--log-line-prefix-template=[${rank}]: "));
  EXPECT_EQ(plan.job_id, "night");
  EXPECT_EQ(plan.min_nodes, 2);
  EXPECT_THAT(plan.script, ElementsAre("train.py", "--lr", "1"));
  EXPECT_EQ(plan.prepare.folder(), "/work");
  EXPECT_EQ(plan.prepare.script(), "train.py");
}

TEST(HostsPlan, HostsPlan_Variables_ReachEachHost) {
  const HostsPlan plan =
      Must({"--hosts=a", "--env=K*,B", "--env=C=x=y"},
           {"NCCL_DEBUG=INFO", "HOME=/me", "KA=a\nb", "K=k", "B=", "PYTHONPATH=/p", "PYTHON_EXEC=/mine"});
  EXPECT_THAT(plan.prepare.environment(), ElementsAre("B=", "C=x=y", "DDPRUN_TOKEN=t", "K=k", "KA=a\nb",
                                                      "NCCL_DEBUG=INFO", "PYTHONPATH=/p", "PYTHON_EXEC=/mine"));
  EXPECT_THAT(Must({"--hosts=a"}).prepare.environment(), Contains("PYTHON_EXEC=/env/python"));
  EXPECT_THAT(Plan({"--hosts=a", "--env=NO"}).status().message(), HasSubstr("--env: 'NO' is not set here"));
}

TEST(HostsPlan, ServerOfTheUser_GetsNoToken) {
  EXPECT_THAT(Must({"--hosts=a", "--rdzv-endpoint=s:1"}).prepare.environment(), Not(Contains(HasSubstr("TOKEN"))));
}

TEST(HostsPlan, JobsThatCanDoWithoutALauncher_MayGetAnotherOne) {
  EXPECT_FALSE(Must({"--hosts=a,b"}).may_restart);
  EXPECT_TRUE(Must({"--hosts=a,b", "--max-restarts=1"}).may_restart);
  EXPECT_TRUE(Must({"--hosts=a,b", "--nnodes=1:2"}).may_restart);
}

TEST(HostsPlan, Folders_HaveNamesOfTheirOwn) {
  EXPECT_THAT(Must({"--hosts=a,me@b", "--rdzv-id=x"}).folders, ElementsAre("x/a", "x/me@b"));
  EXPECT_THAT(Must({"--hosts=a", "--rdzv-id=x/y"}).folders, ElementsAre("x%2Fy/a"));
  EXPECT_THAT(Must({"--hosts=a", "--rdzv-id=x%2Fy z"}).folders, ElementsAre("x%252Fy%20z/a"));
  EXPECT_THAT(Must({"--hosts=[fd00::1]:2", "--rdzv-id=..."}).folders, ElementsAre(".../fd00::1"));
  for (const char* id : {".", ".."}) {
    EXPECT_THAT(Plan({"--hosts=a", absl::StrCat("--rdzv-id=", id)}).status().message(),
                HasSubstr("can't be the name of a folder"));
  }
  EXPECT_FALSE(Plan({"--hosts=a", "--rdzv-id=" + std::string(250, 'x')}).ok());
}

TEST(HostsPlan, WithoutScript_AJobIsFollowed) {
  const absl::StatusOr<HostsPlan> plan = Plan({"--hosts=a,b", "--rdzv-id=night"}, {}, {});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_TRUE(plan->follows());
  EXPECT_EQ(plan->prepare.token(), "");
  EXPECT_FALSE(Plan({"--hosts=a,b"}, {}, {}).ok());
  EXPECT_FALSE(Plan({"--hosts=a,b", "--rdzv-id=night", "--detach"}, {}, {}).ok());
}

TEST(HostsPlan, HostsPlan_InvalidFlags_AreNamed) {
  EXPECT_THAT(Plan({"--hosts=a,b", "--node-rank=1"}).status().message(), HasSubstr("--node-rank=1 with --hosts"));
  EXPECT_THAT(Plan({"--hosts=a,b", "--nnodes=1:3"}).status().message(), HasSubstr("--hosts names 2"));
  EXPECT_THAT(Plan({"--hosts=a"}, {}, {"-"}).status().message(), HasSubstr("can't send a script from standard input"));
}

}  // namespace
}  // namespace ddprun::launcher
