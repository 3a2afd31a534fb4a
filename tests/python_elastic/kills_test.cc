// Training loops of ddprun.elastic (docs/python.md) under real launchers: ranks end by SIGKILL at named points of a
// step, between epochs, and of a recovery. Losses, evaluations and the final state equal an undisturbed run's, bit for
// bit; survivors keep their processes, and no process makes a step twice.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <map>
#include <ostream>
#include <regex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/e2e/launch.h"
#include "tests/simgpu/simulated_gpus.h"

namespace ddprun::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::Ne;
using ::testing::SizeIs;

// Output of a trainer: tests/python_elastic/trainer.py and examples/python/elastic_train.py.
struct Training {
  explicit Training(const std::string& out) {
    static const std::regex kLine("rank (\\d) pid (\\d+) (step|evaluation|end) (\\d+) (?:loss |digest )?(\\S+)\n");
    for (std::sregex_iterator it(out.begin(), out.end(), kLine), end; it != end; ++it) {
      const int rank = std::stoi((*it)[1]), number = std::stoi((*it)[4]);
      const pid_t pid = std::stoi((*it)[2]);
      const std::string what = (*it)[3], value = (*it)[5];
      if (pids[rank].empty() || pids[rank].back() != pid) pids[rank].push_back(pid);
      if (what == "end") {
        ends.insert(value);
        continue;
      }
      const std::pair<std::string, int> place(what, number);
      const auto [at, fresh] = values[rank].emplace(place, value);
      if (at->second != value) differing.push_back(absl::StrCat(what, " ", number, " on rank ", rank));
      if (!made[pid].insert(place).second) twice.push_back(absl::StrCat(what, " ", number, " on rank ", rank));
    }
  }
  // Losses and evaluations of each rank.
  std::map<int, std::map<std::pair<std::string, int>, std::string>> values;
  std::map<int, std::vector<pid_t>> pids;  // processes of each rank, in order
  std::set<std::string> ends;              // checksums of the final states
  std::map<pid_t, std::set<std::pair<std::string, int>>> made;
  std::vector<std::string> twice;      // made twice by one process
  std::vector<std::string> differing;  // values that differ between processes of a rank
};

class PythonElasticTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (VenvPython().empty()) GTEST_SKIP() << "no .venv with torch (scripts/setup makes one)";
  }

  // Starts `ranks` workers of the program, from a process that has imported PyTorch.
  Launcher Start(int ranks, const std::string& program, const std::vector<std::string>& arguments,
                 std::map<std::string, std::string> environment = {}, int restarts = 20) const {
    std::vector<std::string> command = {"--standalone", absl::StrCat("--nproc-per-node=", ranks),
                                        "--preload=torch,torch._dynamo", absl::StrCat("--max-restarts=", restarts),
                                        program};
    command.insert(command.end(), arguments.begin(), arguments.end());
    environment.merge(std::map<std::string, std::string>{{"PYTHON_EXEC", VenvPython()},
                                                         {"PYTHONPATH", std::filesystem::absolute("packaging/wheel")},
                                                         {"OMP_NUM_THREADS", "1"},
                                                         {"KILLED", killed_.path()}});
    return Launcher(std::move(command), std::move(environment));
  }
  Training Finish(Launcher* launcher) const {
    EXPECT_EQ(launcher->Wait(3 * Process::kPatience), 0) << launcher->Err();
    return Training(launcher->Out());
  }

  const TempDir killed_;  // marks of the kills that were made
};

constexpr char kTrainer[] = "tests/python_elastic/trainer.py";

struct Kills {
  const char* name;
  std::vector<std::string> arguments;
  int ranks;
  std::vector<std::string> points;  // RANK:STEP:POINT
  std::string device = "cpu";
};
void PrintTo(const Kills& kills, std::ostream* out) { *out << kills.name; }

class KillsTest : public PythonElasticTest, public ::testing::WithParamInterface<Kills> {};

// A rank that dies in a point between two lines of its output has one line less.
TEST_P(KillsTest, Train_RanksKilled_EqualsUndisturbedRun) {
  const Kills& kills = GetParam();
  std::map<std::string, std::string> environment = {{"DEVICE", kills.device}};
  if (kills.device == "cuda") environment = SimulatedGpus(kills.ranks, environment);
  Launcher undisturbed = Start(kills.ranks, kTrainer, kills.arguments, environment);
  const Training expected = Finish(&undisturbed);
  environment["KILL"] = absl::StrJoin(kills.points, ",");
  Launcher launcher = Start(kills.ranks, kTrainer, kills.arguments, environment);
  const Training run = Finish(&launcher);

  ASSERT_THAT(expected.values, SizeIs(kills.ranks)) << undisturbed.Out();
  EXPECT_THAT(expected.ends, SizeIs(1));
  EXPECT_EQ(run.ends, expected.ends) << "the final states";
  std::map<int, size_t> deaths;
  for (size_t i = 0; i < kills.points.size(); ++i) {
    EXPECT_TRUE(std::filesystem::exists(killed_.File(absl::StrCat(i)))) << kills.points[i] << " was not reached";
    ++deaths[kills.points[i][0] - '0'];
  }
  size_t missing = 0;
  for (const auto& [rank, values] : expected.values) {
    EXPECT_LE(run.pids.at(rank).size(), 1 + deaths[rank]) << "a survivor of rank " << rank << " lost its process";
    for (const auto& [place, value] : values) {
      const auto found = run.values.at(rank).find(place);
      if (found == run.values.at(rank).end()) {
        ++missing;
      } else {
        EXPECT_EQ(found->second, value) << place.first << " " << place.second << " on rank " << rank;
      }
    }
  }
  EXPECT_LE(missing, kills.points.size());
  EXPECT_THAT(run.twice, SizeIs(0)) << run.twice.front();
  EXPECT_THAT(run.differing, SizeIs(0)) << run.differing.front();
}

const Kills kKills[] = {
    // Within a step: each point, rank 0 too, and twice in a row.
    {"Mlp",
     {"mlp", "4"},
     3,
     {"1:3:forward", "2:6:backward", "0:9:reduce", "1:12:update", "2:15:updated", "0:18:committed", "0:21:backward",
      "1:21:join", "2:24:transferred", "1:24:backward"}},
    {"Gpt",
     {"gpt", "2"},
     2,
     {"1:2:backward", "0:4:update", "1:7:updated", "0:11:committed", "1:6:epoch", "0:8:reduce"}},
    {"BatchNorm",
     {"bn", "5"},
     3,
     {"1:2:update", "2:5:epoch", "0:10:evaluate", "1:12:updated", "2:15:evaluated", "0:17:reduce", "0:20:committed",
      "1:25:evaluate"}},
    {"GradScaler",
     {"scaler", "4"},
     2,
     {"1:1:unscaled", "0:5:update", "1:9:updated", "0:13:unscaled", "1:17:committed", "0:23:reduce"}},
    // The same over NCCL.
    {"MlpOnGpus",
     {"mlp", "4"},
     3,
     {"1:3:forward", "2:6:backward", "0:9:reduce", "1:12:update", "2:15:updated", "0:18:committed", "0:21:backward",
      "1:21:join", "2:24:transferred", "1:24:backward"},
     "cuda"},
    {"BatchNormOnGpus",
     {"bn", "5"},
     2,
     {"1:2:update", "1:5:epoch", "0:10:evaluate", "1:12:updated", "1:15:evaluated", "0:17:reduce", "0:20:committed",
      "1:25:evaluate"},
     "cuda"},
    {"GradScalerOnGpus",
     {"scaler", "4"},
     4,
     {"1:1:unscaled", "0:5:update", "3:9:updated", "2:13:unscaled", "1:17:committed", "0:23:reduce"},
     "cuda"},
};

// examples/python/elastic_train.py
TEST_F(PythonElasticTest, Example_WorkerKilled_SurvivorKeepsProcessAndLosses) {
  const std::string example = "examples/python/elastic_train.py";
  Launcher undisturbed = Start(2, example, {"60"});
  const Training expected = Finish(&undisturbed);
  Launcher launcher = Start(2, example, {"60"});
  ASSERT_TRUE(launcher.WaitForOut(" step 10 loss")) << launcher.Err();
  const pid_t victim = Training(launcher.Out()).pids[1].back();
  kill(victim, SIGKILL);
  const Training run = Finish(&launcher);
  EXPECT_EQ(run.values.at(0), expected.values.at(0));
  EXPECT_THAT(expected.values.at(0), SizeIs(60 * 8));
  EXPECT_THAT(run.differing, SizeIs(0));
  EXPECT_THAT(run.pids.at(0), SizeIs(1)) << "the survivor's process";
  EXPECT_THAT(run.pids.at(1), ElementsAre(victim, Ne(victim)));
}

// The others wait in the same step, or in the next one.
TEST_F(PythonElasticTest, StoppedWorker_RestartOnHang_OnlyItIsReplaced) {
  Launcher undisturbed = Start(3, kTrainer, {"mlp", "3"});
  const Training expected = Finish(&undisturbed);
  Launcher launcher = Start(3, kTrainer, {"mlp", "3"}, {{"PAUSE", "0.05"}, {"PET_ON_HANG", "restart:10"}});
  ASSERT_TRUE(launcher.WaitForOut(" step 12 loss")) << launcher.Err();
  kill(Training(launcher.Out()).pids[1].back(), SIGSTOP);
  const Training run = Finish(&launcher);
  EXPECT_EQ(run.ends, expected.ends);
  for (const int rank : {0, 1, 2}) EXPECT_THAT(run.pids.at(rank), SizeIs(rank == 1 ? 2 : 1)) << launcher.Err();
}

TEST_F(PythonElasticTest, Errors_EachMisuse_IsNamed) {
  Launcher launcher = Start(2, kTrainer, {"errors", "1"});
  EXPECT_EQ(launcher.Wait(), 0) << launcher.Err();
  for (const char* error : {
           "allreduce after the optimizer's step within a step",
           "SGD.step: worker.state does not know this optimizer",
           "barrier outside of a step",
           "SGD.step outside of `with step:`",
           "worker.retry: call it within",
       }) {
    EXPECT_THAT(launcher.Out(), HasSubstr(error));
  }
}

TEST_F(PythonElasticTest, Steps_UnequalNumbersOfBatches_IsNamed) {
  Launcher launcher = Start(2, kTrainer, {"unequal", "1"}, {}, 0);
  EXPECT_EQ(launcher.Wait(), 1);
  EXPECT_THAT(launcher.Err(), HasSubstr("RanksDiffer: the ranks are at different places: rank 0 at a step (epoch 0, 4 "
                                        "batches drawn, 3 steps done), rank 1 at the end of an epoch (epoch 0, 3 "
                                        "batches drawn, 3 steps done)"));
}

TEST_F(PythonElasticTest, Checkpoint_NoSurvivorThenStopThenTorchrun_EqualsUndisturbedRun) {
  const TempDir dir;
  Launcher undisturbed = Start(2, kTrainer, {"mlp", "4"});
  const Training expected = Finish(&undisturbed);
  Launcher launcher =
      Start(2, kTrainer, {"mlp", "4", dir.path()}, {{"KILL", "0:12:update,1:12:update"}, {"PAUSE", "0.1"}});
  ASSERT_TRUE(launcher.WaitForOut(" step 16 loss")) << launcher.Err();
  launcher.Signal(SIGTERM);
  EXPECT_EQ(launcher.Wait(), 128 + SIGTERM) << launcher.Err();
  EXPECT_THAT(Training(launcher.Out()).differing, SizeIs(0));
  Process torchrun({VenvPython(), "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", kTrainer, "mlp",
                    "4", dir.path()},
                   {{"PYTHONPATH", std::filesystem::absolute("packaging/wheel")}, {"OMP_NUM_THREADS", "1"}});
  EXPECT_EQ(torchrun.Wait(), 0) << torchrun.Err();
  const Training rest(torchrun.Out());
  EXPECT_EQ(rest.ends, expected.ends);
  EXPECT_EQ(rest.values.at(0).count({"step", 10}), 0) << "it began with the checkpoint";
}

INSTANTIATE_TEST_SUITE_P(All, KillsTest, ::testing::ValuesIn(kKills),
                         [](const auto& kills) { return std::string(kills.param.name); });

}  // namespace
}  // namespace ddprun::testing
