#include "launcher/workers/rank_environment.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "launcher/fork_server/fork_server.h"
#include "tests/testing/text_proto.h"
#include "worker_contract/environment.h"

namespace ddprun::launcher {
namespace {

// The variables by name; a repeated name fails the test.
std::map<std::string, std::string> Read(const std::vector<std::string>& environment) {
  std::map<std::string, std::string> variables;
  for (const std::string& entry : environment) {
    const std::pair<std::string, std::string> parts = absl::StrSplit(entry, absl::MaxSplits('=', 1));
    EXPECT_TRUE(variables.insert(parts).second) << entry;
  }
  return variables;
}

class RankEnvironmentTest : public testing::Test {
 protected:
  RankEnvironmentTest() {
    config_.settings.set_max_restarts(5);
    config_.shutdown_timeout = absl::Seconds(30);
    config_.options.signals_to_handle = {SIGTERM, SIGUSR1};
  }

  // Environment of the worker with this local rank, whose launcher has the environment `base`.
  std::vector<std::string> Environment(int local_rank, const std::vector<std::string>& base = {},
                                       const std::string& error_file = "") {
    return RankEnvironment(assignment_, local_rank, config_, facts_, error_file, base);
  }
  std::map<std::string, std::string> Variables(int local_rank, const std::vector<std::string>& base = {}) {
    return Read(Environment(local_rank, base));
  }

  rendezvous::Assignment assignment_ = TextProto<rendezvous::Assignment>(
      "round: 7 group_rank: 1 group_world_size: 3 base_rank: 4 world_size: 15 base_role_rank: 2 role_world_size: 6 "
      "master_addr: '10.0.0.1' master_port: 40123 restart_count: 2");
  LaunchConfig config_{.options = {.role = "trainer"}, .job_id = "job 7", .slots = 4};
  LauncherFacts facts_{.launcher_ids = "abc", .worker_link = "@link"};
};

TEST_F(RankEnvironmentTest, EveryVariable_HasItsValue) {
  const auto variables = Read(Environment(3, {}, "/logs/3/error.json"));
  const char kExpected[] =
      "RANK=7|LOCAL_RANK=3|WORLD_SIZE=15|LOCAL_WORLD_SIZE=4|GROUP_RANK=1|GROUP_WORLD_SIZE=3|ROLE_NAME=trainer|"
      "ROLE_RANK=5|ROLE_WORLD_SIZE=6|MASTER_ADDR=10.0.0.1|MASTER_PORT=40123|TORCHELASTIC_USE_AGENT_STORE=True|"
      "TORCHELASTIC_RESTART_COUNT=2|TORCHELASTIC_MAX_RESTARTS=5|TORCHELASTIC_RUN_ID=job 7|"
      "TORCHELASTIC_ERROR_FILE=/logs/3/error.json|TORCHELASTIC_SIGNALS_TO_HANDLE=SIGTERM,SIGUSR1|"
      "TORCH_NCCL_ASYNC_ERROR_HANDLING=1|OMP_NUM_THREADS=1|DDPRUN_ROUND=7|DDPRUN_LAUNCHER_ID=abc|DDPRUN_STOP_GRACE=30|"
      "DDPRUN_WORKER_LINK=@link";
  EXPECT_EQ(variables, Read(absl::StrSplit(kExpected, '|')));
}

// Five nodes with 4, 1, 2, 3 and 5 workers of the roles ps, trainer, trainer, trainer, ps.
TEST_F(RankEnvironmentTest, NodesOfDifferentSizesAndRoles_RanksAreUnique) {
  const struct {
    const char* role;
    int slots, base_rank, base_role_rank, role_world_size;
  } kNodes[] = {{"ps", 4, 0, 0, 9},
                {"trainer", 1, 4, 0, 6},
                {"trainer", 2, 5, 1, 6},
                {"trainer", 3, 7, 3, 6},
                {"ps", 5, 10, 4, 9}};
  std::set<std::string> ranks;
  std::set<std::string> role_ranks;
  int32_t group_rank = 0;
  for (const auto& node : kNodes) {
    assignment_ = TextProto<rendezvous::Assignment>("group_world_size: 5 world_size: 15");
    assignment_.set_group_rank(group_rank++);
    assignment_.set_base_rank(node.base_rank);
    assignment_.set_base_role_rank(node.base_role_rank);
    assignment_.set_role_world_size(node.role_world_size);
    config_.slots = node.slots;
    config_.options.role = node.role;
    for (int local_rank = 0; local_rank < node.slots; ++local_rank) {
      auto variables = Variables(local_rank);
      EXPECT_EQ(variables["LOCAL_RANK"], absl::StrCat(local_rank));
      EXPECT_EQ(variables["LOCAL_WORLD_SIZE"], absl::StrCat(node.slots));
      EXPECT_EQ(variables["WORLD_SIZE"], "15");
      EXPECT_EQ(variables["ROLE_WORLD_SIZE"], absl::StrCat(node.role_world_size));
      EXPECT_TRUE(ranks.insert(variables["RANK"]).second);
      EXPECT_TRUE(role_ranks.insert(variables["ROLE_NAME"] + variables["ROLE_RANK"]).second);
    }
  }
  for (int rank = 0; rank < 15; ++rank) EXPECT_EQ(ranks.count(absl::StrCat(rank)), 1) << rank;
  for (int rank = 0; rank < 9; ++rank) EXPECT_EQ(role_ranks.count(absl::StrCat("ps", rank)), 1) << rank;
  for (int rank = 0; rank < 6; ++rank) EXPECT_EQ(role_ranks.count(absl::StrCat("trainer", rank)), 1) << rank;
}

TEST_F(RankEnvironmentTest, InheritedVariables_KeepTheirOrder) {
  const std::vector<std::string> base = {"PATH=/bin",      "EMPTY=",  "EQUALS=a=b=c",
                                         "SLURM_PROCID=3", "PETER=x", "CUDA_VISIBLE_DEVICES=2,3"};
  const std::vector<std::string> environment = Environment(0, base);
  ASSERT_GE(environment.size(), base.size());
  EXPECT_EQ(std::vector<std::string>(environment.begin(), environment.begin() + base.size()), base);
}

TEST_F(RankEnvironmentTest, InheritedVariables_AreReplacedExceptDefaults) {
  const std::vector<std::string> base = {"RANK=99", "MASTER_ADDR=elsewhere", "TORCHELASTIC_ERROR_FILE=/outer",   "X=1",
                                         "X=2",     "OMP_NUM_THREADS=8",     "TORCH_NCCL_ASYNC_ERROR_HANDLING=3"};
  auto variables = Variables(0, base);
  EXPECT_EQ(variables["RANK"], "4");
  EXPECT_EQ(variables["MASTER_ADDR"], "10.0.0.1");
  EXPECT_EQ(variables["TORCHELASTIC_ERROR_FILE"], "") << "another launcher's worker must not write there";
  EXPECT_EQ(variables["X"], "1") << "what getenv finds";
  EXPECT_EQ(variables["OMP_NUM_THREADS"], "8");
  EXPECT_EQ(variables["TORCH_NCCL_ASYNC_ERROR_HANDLING"], "3");
}

TEST_F(RankEnvironmentTest, PetVariables_AreRemoved) {
  const auto variables = Variables(0, {"PET_NNODES=2", "PET_=x", "PETS=cat"});
  for (const char* name : {"PET_NNODES", "PET_"}) EXPECT_EQ(variables.count(name), 0);
  EXPECT_EQ(variables.count("PETS"), 1);
}

TEST_F(RankEnvironmentTest, OneWorker_OmpNumThreadsIsNotSet) {
  config_.slots = 1;
  EXPECT_EQ(Variables(0).count("OMP_NUM_THREADS"), 0);
}

TEST_F(RankEnvironmentTest, JobEnd_Known_IsPassedOn) {
  config_.shutdown_timeout = absl::Milliseconds(2500);
  facts_.job_end = absl::FromUnixSeconds(1234567890);
  const auto variables = Variables(0, {"DDPRUN_JOB_END_TIME=1"});
  EXPECT_EQ(variables.at("DDPRUN_STOP_GRACE"), "2.5");
  EXPECT_EQ(variables.at("DDPRUN_JOB_END_TIME"), "1234567890");
}

TEST_F(RankEnvironmentTest, GlooInterface_InheritedOne_IsKept) {
  facts_.gloo_interface = "eth1";
  EXPECT_EQ(Variables(0)["GLOO_SOCKET_IFNAME"], "eth1");
  const std::vector<std::string> chosen = {"GLOO_SOCKET_IFNAME=ib0"};
  EXPECT_EQ(Variables(0, chosen)["GLOO_SOCKET_IFNAME"], "ib0");
  assignment_.set_group_world_size(1);  // currently
  EXPECT_EQ(Variables(0)["GLOO_SOCKET_IFNAME"], "eth1");
  facts_.gloo_interface = "";
  EXPECT_EQ(Variables(0).count("GLOO_SOCKET_IFNAME"), 0);
}

TEST_F(RankEnvironmentTest, PortRange_GuardPrecedesOtherPreloadsOnce) {
  config_.options.port_range = PortRange{29400, 29499};
  config_.endpoint.port = 29400;
  facts_.preloaded = {"/lib/guard.so"};
  auto variables = Variables(0);
  EXPECT_EQ(variables["DDPRUN_PORT_RANGE"], "29400-29499 except 29400");
  EXPECT_EQ(variables["LD_PRELOAD"], "/lib/guard.so");
  const std::vector<std::string> base = {"LD_PRELOAD=/a.so /lib/guard.so:/b.so"};
  variables = Variables(0, base);
  EXPECT_EQ(variables["LD_PRELOAD"], "/lib/guard.so:/a.so:/b.so");
  config_.options.port_range.reset();
  facts_.preloaded.clear();
  variables = Variables(0, base);
  EXPECT_EQ(variables["LD_PRELOAD"], "/a.so /lib/guard.so:/b.so") << "without a range it is not ours";
}

TEST_F(RankEnvironmentTest, Preloads_SanitizersStayFirst) {
  facts_.preloaded = {"/lib/crash.so"};
  const auto value = [&](const std::string& before) {
    return Variables(0, {absl::StrCat("LD_PRELOAD=", before)})["LD_PRELOAD"];
  };
  EXPECT_EQ(value("libasan.so.8"), "libasan.so.8:/lib/crash.so");
  EXPECT_EQ(value("/a.so:/usr/lib/libtsan.so.2 /libclang_rt.asan-x86_64.so"),
            "/usr/lib/libtsan.so.2:/libclang_rt.asan-x86_64.so:/lib/crash.so:/a.so");
  EXPECT_EQ(value("/libasan.so.8/b.so:libasanity.so"), "/lib/crash.so:/libasan.so.8/b.so:libasanity.so");
}

TEST_F(RankEnvironmentTest, Devices_EachWorkerSeesItsOwnOnly) {
  config_.devices = {"4", "5", "GPU-6", "7"};
  config_.accelerators.variables = {"CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"};
  const auto variables = Variables(2, {"CUDA_VISIBLE_DEVICES=4,5", "HIP_VISIBLE_DEVICES=4,5,GPU-6,7"});
  EXPECT_EQ(variables.at("LOCAL_RANK"), "0");
  EXPECT_EQ(variables.at("RANK"), "6");
  EXPECT_EQ(variables.at("CUDA_VISIBLE_DEVICES"), "GPU-6");
  EXPECT_EQ(variables.at("HIP_VISIBLE_DEVICES"), "GPU-6");
}

TEST_F(RankEnvironmentTest, CommonEnvironment_HasNoVariableOfARank) {
  const std::vector<std::string> base = {"PATH=/bin", "PET_NNODES=2", "RANK=3", "MASTER_ADDR=outer", "ROLE_NAME=outer"};
  const auto common = Read(CommonEnvironment(config_, facts_, base));
  const char kExpected[] =
      "PATH=/bin|LOCAL_WORLD_SIZE=4|ROLE_NAME=trainer|TORCHELASTIC_USE_AGENT_STORE=True|TORCHELASTIC_MAX_RESTARTS=5|"
      "TORCHELASTIC_RUN_ID=job 7|TORCHELASTIC_SIGNALS_TO_HANDLE=SIGTERM,SIGUSR1|DDPRUN_LAUNCHER_ID=abc|"
      "TORCH_NCCL_ASYNC_ERROR_HANDLING=1|OMP_NUM_THREADS=1";
  for (const auto& [name, value] : Read(absl::StrSplit(kExpected, '|'))) EXPECT_EQ(common.at(name), value) << name;
  for (const char* name : {"PET_NNODES", "RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) {
    EXPECT_EQ(common.count(name), 0) << name;
  }
}

TEST_F(RankEnvironmentTest, EnvironmentChanges_Applied_GiveTheWantedEnvironment) {
  const std::vector<std::string> base = {"PATH=/bin", "RANK=3", "EMPTY=", "WITH=a=b"};
  const std::vector<std::string> common = CommonEnvironment(config_, facts_, base);
  const std::vector<std::string> wanted = Environment(1, base, "/logs/1/error.json");
  auto made = Read(common);
  for (const std::string& change : EnvironmentChanges(common, wanted)) {
    const size_t equals = change.find('=');
    if (equals == std::string::npos) {
      EXPECT_EQ(made.erase(change), 1) << change;
    } else {
      made[change.substr(0, equals)] = change.substr(equals + 1);
    }
  }
  EXPECT_EQ(made, Read(wanted));
  EXPECT_EQ(EnvironmentChanges({"A=1", "B=2", "C=3"}, {"A=1", "B=4"}), (std::vector<std::string>{"B=4", "C"}));
  EXPECT_TRUE(EnvironmentChanges(wanted, wanted).empty());
}

// A survivor that sets these variables has the environment of a new process.
TEST_F(RankEnvironmentTest, ReformLine_HasTheValuesOfANewProcess) {
  assignment_.set_state_source(3);
  assignment_.set_state_step(120);
  const worker_contract::LinkReForm line = ReformLine(assignment_, 2, config_.slots);
  const auto variables = Variables(2);
  const std::map<std::string, std::string> told = {
      {"RANK", absl::StrCat(line.rank)},
      {"WORLD_SIZE", absl::StrCat(line.world_size)},
      {"LOCAL_WORLD_SIZE", absl::StrCat(line.local_world_size)},
      {"GROUP_RANK", absl::StrCat(line.group_rank)},
      {"GROUP_WORLD_SIZE", absl::StrCat(line.group_world_size)},
      {"ROLE_RANK", absl::StrCat(line.role_rank)},
      {"ROLE_WORLD_SIZE", absl::StrCat(line.role_world_size)},
      {"MASTER_ADDR", line.master_addr},
      {"MASTER_PORT", absl::StrCat(line.master_port)},
      {"TORCHELASTIC_RESTART_COUNT", absl::StrCat(line.restart_count)},
      {"DDPRUN_ROUND", absl::StrCat(line.round)},
  };
  for (const auto& [name, value] : told) EXPECT_EQ(value, variables.at(name)) << name;
  EXPECT_EQ(line.state_source, 3);
  EXPECT_EQ(line.state_step, 120);
}

}  // namespace
}  // namespace ddprun::launcher
