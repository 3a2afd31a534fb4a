// The C++ examples on simulated GPUs, under the real launcher.
#include <gtest/gtest.h>
#include <unistd.h>

#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "tests/e2e/launch.h"
#include "tests/simgpu/simulated_gpus.h"

namespace ddprun::testing {
namespace {

// The output of `workers` workers on as many GPUs as `gpus`, each of which must succeed.
std::string OutputOf(int workers, int gpus, const std::string& example, std::vector<std::string> arguments = {}) {
  std::vector<std::string> flags = {"--standalone", absl::StrCat("--nproc-per-node=", workers), "--no-python",
                                    "examples/cpp/" + example, "--backend=nccl"};
  flags.insert(flags.end(), arguments.begin(), arguments.end());
  Finished launcher(0, flags, SimulatedGpus(gpus));
  return launcher.Out();
}

TEST(ExamplesGpuTest, BasicDdp_TwoGpus_ParametersAreEqual) {
  const std::string out = OutputOf(2, 2, "basic_ddp");
  EXPECT_EQ(Count(out, "step 3  rank "), 2) << out;
  const std::string sum = "the parameters' sum is ";
  const size_t first = out.find(sum), last = out.rfind(sum);
  ASSERT_NE(first, last) << out;
  EXPECT_EQ(out.substr(first, out.find('\n', first) - first), out.substr(last, out.find('\n', last) - last));
}

// One worker for each GPU; --backend=auto finds the GPU.
TEST(ExamplesGpuTest, NprocPerNode_Gpu_OneWorkerPerGpu) {
  constexpr int kNoNamespaces = 77;
  TempDir dir;
  Process launcher({"tests/simgpu/device_files.sh", "3", "launcher/ddprun", "--standalone", "--nproc-per-node=gpu",
                    "--no-python", "examples/cpp/checkpoint_ddp", "--folder=" + dir.File("checkpoints")},
                   SimulatedGpus(3));
  const int code = launcher.Wait();
  if (code == kNoNamespaces) GTEST_SKIP() << "this host allows no mount namespaces";
  EXPECT_EQ(code, 0) << launcher.Err();
  EXPECT_THAT(launcher.Out(), HasSubstr("rank 2 has loaded step 1 onto cuda:2")) << launcher.Err();
  EXPECT_EQ(Count(launcher.Out(), " has loaded step 1 onto cuda:"), 3);
}

TEST(ExamplesGpuTest, CheckpointDdp_TwoGpus_EachRankLoadsOntoItsGpu) {
  TempDir dir;
  const std::string out = OutputOf(2, 2, "checkpoint_ddp", {"--folder=" + dir.File("checkpoints")});
  for (const char* line : {"rank 0 has loaded step 1 onto cuda:0: the same parameters",
                           "rank 1 has loaded step 1 onto cuda:1: the same parameters"}) {
    EXPECT_THAT(out, HasSubstr(line));
  }
}

TEST(ExamplesGpuTest, ElasticToy_TwoGpus_EveryWorkerMakesItsStep) {
  const std::string out = OutputOf(4, 4, "elastic_toy");
  EXPECT_EQ(Count(out, " made its step"), 4) << out;
}

// Losses by step and rank that elastic_gpt printed.
std::map<std::string, std::string> LossesOfElasticGpt(const std::map<std::string, std::string>& environment) {
  Finished launcher(0,
                    {"--standalone", "--nproc-per-node=2", "--max-restarts=1", "--no-python",
                     "examples/cpp/elastic_gpt", "--backend=nccl", "--steps=12", "--batch-size=2"},
                    SimulatedGpus(2, environment));
  std::map<std::string, std::string> losses;
  for (absl::string_view line : absl::StrSplit(launcher.Out(), '\n')) {
    // step N  epoch E  round R  rank K of W has loss L
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    if (words.size() != 13 || words[0] != "step") continue;
    losses[absl::StrCat("step ", words[1], " rank ", words[7])] = std::string(words[12]);
  }
  return losses;
}

TEST(ExamplesGpuTest, ElasticGpt_RankDies_LossesAreEqual) {
  const TempDir dir;
  const std::string once = dir.File("once");
  const auto expected = LossesOfElasticGpt({});
  const auto losses = LossesOfElasticGpt({{"SIMCUDA_DIE", "1:middle:20"}, {"SIMCUDA_DIE_ONCE", once}});
  EXPECT_EQ(expected.size(), 24);
  EXPECT_EQ(access(once.c_str(), F_OK), 0) << "rank 1 did not die";
  // Rank 1 may have died after a step was committed and before it printed its loss.
  for (const auto& [step, loss] : losses) EXPECT_EQ(loss, expected.at(step)) << step;
  EXPECT_GE(losses.size(), expected.size() - 1);
}

TEST(ExamplesGpuTest, ModelParallel_TwoGpus_AreUsed) {
  const std::string out = OutputOf(2, 4, "model_parallel");
  EXPECT_EQ(Count(out, " on cuda:0 and cuda:1"), 2) << out;
  EXPECT_EQ(Count(out, " on cuda:2 and cuda:3"), 2) << out;
}

// The fused optimizer and the snapshots of a GPU; the run that resumes ends where the other one does.
TEST(ExamplesGpuTest, TrainGpt_Restarted_ResumesFromSnapshot) {
  TempDir dir;
  const auto train = [&](int steps, const std::string& folder) {
    return OutputOf(2, 2, "train_gpt",
                    {absl::StrCat("--steps=", steps), "--batch-size=2", "--snapshot-every=3", "--snapshot=" + folder});
  };
  const std::string whole = train(6, dir.File("whole"));
  train(3, dir.File("parts"));
  const std::string resumed = train(6, dir.File("parts"));
  // The line also has speeds, after two spaces.
  const size_t last = whole.find("step    6/6");
  ASSERT_NE(last, std::string::npos) << whole;
  EXPECT_THAT(resumed, HasSubstr(whole.substr(last, whole.find("  (", last) - last)));
}

}  // namespace
}  // namespace ddprun::testing
