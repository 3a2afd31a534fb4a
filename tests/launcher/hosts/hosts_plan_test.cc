#include "launcher/hosts/hosts_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <variant>

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
  const absl::StatusOr<ParseResult> parsed = ParseOptions(flags, [](const std::string&) { return std::nullopt; });
  if (!parsed.ok()) return parsed.status();
  const auto& options = std::get<ParsedOptions>(*parsed);
  Options here = options.options;
  here.nnodes = {};
  here.node_rank = {};
  const absl::StatusOr<LaunchConfig> config = Resolve(here, HostFacts{.cpus = 4, .random_id = "id"});
  if (!config.ok()) return config.status();
  HostsInput input{.hosts = here.hosts, .folder = "/work", .environment = environment, .python = "/env/python"};
  input.random_job_id = "j";
  input.random_token = "t";
  input.random_session = "s";
  return PlanHosts(options, *config, std::move(input));
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

TEST(HostsPlan, Variables) {
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

TEST(HostsPlan, JobsThatCanDoWithoutAHost_AreConnectedAgain) {
  EXPECT_FALSE(Must({"--hosts=a,b"}).may_reconnect);
  EXPECT_TRUE(Must({"--hosts=a,b", "--max-restarts=1"}).may_reconnect);
  EXPECT_TRUE(Must({"--hosts=a,b", "--nnodes=1:2"}).may_reconnect);
  EXPECT_FALSE(Must({"--hosts=a,b", "--nnodes=1:2", "--detach"}).may_reconnect);
}

TEST(HostsPlan, WrongFlags) {
  EXPECT_THAT(Plan({"--hosts=a,b", "--node-rank=1"}).status().message(), HasSubstr("--node-rank=1 with --hosts"));
  EXPECT_THAT(Plan({"--hosts=a,b", "--nnodes=1:3"}).status().message(), HasSubstr("--hosts names 2"));
  EXPECT_THAT(Plan({"--hosts=a"}, {}, {"-"}).status().message(), HasSubstr("can't send a script from standard input"));
}

}  // namespace
}  // namespace ddprun::launcher
