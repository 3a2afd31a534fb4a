// The worker runtime's features on simulated GPUs.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "tests/e2e/launch.h"
#include "tests/simgpu/simulated_gpus.h"

namespace ddprun::testing {
namespace {

using Environment = std::map<std::string, std::string>;

std::vector<std::string> Flags(int ranks, const std::string& mode, const std::string& device,
                               const std::string& backend, const std::string& argument) {
  return {"--standalone", absl::StrCat("--nproc-per-node=", ranks),
          "--no-python",  "tests/simgpu/features/features",
          mode,           device,
          backend,        argument};
}

// The lines that the ranks print, sorted.
std::vector<std::string> Numbers(const std::string& device, const std::string& backend, const Environment& environment,
                                 int ranks = 2) {
  const TempDir folder;
  Finished launcher(0, Flags(ranks, "all", device, backend, folder.path()), environment);
  std::vector<std::string> lines = absl::StrSplit(launcher.Out(), '\n');
  std::sort(lines.begin(), lines.end());
  return lines;
}

const std::vector<std::string>& NumbersOnCpu() {
  static const auto* const numbers = new std::vector<std::string>(Numbers("cpu", "gloo", {{"OMP_NUM_THREADS", "1"}}));
  return *numbers;
}

std::vector<std::string> Engines() {
  std::vector<std::string> engines = {"nccl"};
  if (HasNccl2()) engines.push_back("nccl2");
  return engines;
}

TEST(FeaturesTest, TwoRanks_OverNccl_NumbersEqualTheCpus) {
  EXPECT_GT(NumbersOnCpu().size(), 30);
  for (const std::string& engine : Engines()) {
    EXPECT_EQ(Numbers("cuda", engine, SimulatedGpus(2)), NumbersOnCpu()) << engine;
  }
}

// Gloo adds the numbers of four ranks in another order than NCCL does, so only Gloo's are those of the CPU.
TEST(FeaturesTest, FourRanks_OverGloo_NumbersEqualTheCpus) {
  EXPECT_EQ(Numbers("cuda", "cuda:gloo", SimulatedGpus(4), 4), Numbers("cpu", "gloo", {{"OMP_NUM_THREADS", "1"}}, 4));
}

TEST(FeaturesTest, FourRanks_OverNccl_PrintsAsManyNumbers) {
  EXPECT_EQ(Numbers("cuda", "nccl", SimulatedGpus(4), 4).size(), 2 * NumbersOnCpu().size() - 1);
}

TEST(FeaturesTest, TwoRanks_MixedGroup_NumbersEqualTheCpus) {
  EXPECT_EQ(Numbers("cuda", "cpu:gloo,cuda:nccl", SimulatedGpus(2)), NumbersOnCpu());
}

// Code that reads a result without waiting for its stream finds an old one.
TEST(FeaturesTest, TwoRanks_SlowDevice_NumbersEqualTheCpus) {
  const Environment slow = {{"SIMCUDA_DELAY_US", "200"}, {"SIMNCCL_LAUNCH_MS", "1"}};
  for (const std::string& engine : Engines()) {
    EXPECT_EQ(Numbers("cuda", engine, SimulatedGpus(2, slow)), NumbersOnCpu()) << engine;
  }
}

TEST(FeaturesTest, ReForm_ManyTimes_NothingGrows) {
  for (const std::string& engine : Engines()) {
    Finished launcher(0, Flags(2, "re-form", "cuda", "cpu:gloo,cuda:" + engine, "100"), SimulatedGpus(2));
    EXPECT_EQ(Count(launcher.Out(), "re-formed rank"), 2) << engine << ":\n" << launcher.Out();
  }
}

}  // namespace
}  // namespace ddprun::testing
