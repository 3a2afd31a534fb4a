// The small C++ examples under the real launcher, and by Spawn.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/e2e/launch.h"

namespace ddprun::testing {
namespace {

std::string Path(const std::string& example) { return "examples/cpp/" + example; }

std::vector<std::string> Flags(int workers, const std::string& example, std::vector<std::string> arguments = {}) {
  std::vector<std::string> flags = {"--standalone", absl::StrCat("--nproc-per-node=", workers), "--no-python",
                                    Path(example)};
  flags.insert(flags.end(), arguments.begin(), arguments.end());
  return flags;
}

// Returns the text after `start` in each line that has it.
std::vector<std::string> After(const std::string& out, const std::string& start) {
  std::vector<std::string> found;
  for (absl::string_view line : absl::StrSplit(out, '\n')) {
    const size_t at = line.find(start);
    if (at != absl::string_view::npos) found.emplace_back(line.substr(at + start.size()));
  }
  return found;
}

void ExpectEqualParameters(const std::string& out, size_t ranks) {
  const std::vector<std::string> sums = After(out, "the parameters' sum is ");
  EXPECT_EQ(sums.size(), ranks) << out;
  EXPECT_EQ(std::set<std::string>(sums.begin(), sums.end()).size(), 1) << out;
}

TEST(BasicDdpTest, UnderTheLauncher_AllRanksEndWithTheSameParameters) {
  Finished launcher(0, Flags(2, "basic_ddp"));
  ExpectEqualParameters(launcher.Out(), 2);
  EXPECT_EQ(Count(launcher.Out(), "step 3  rank "), 2) << launcher.Out();
}

TEST(BasicDdpTest, BySpawn_AllRanksEndWithTheSameParameters) {
  Process program({Path("basic_ddp"), "--spawn=2", "--steps=1"});
  EXPECT_EQ(program.Wait(), 0) << program.Err();
  ExpectEqualParameters(program.Out(), 2);
}

TEST(ExamplesTest, UsageError_IsOneLineWithExitCode2) {
  const auto expect = [](std::vector<std::string> argv, const std::string& text) {
    Process program(argv);
    EXPECT_EQ(program.Wait(), 2);
    EXPECT_EQ(Lines(program.Err()), 1) << program.Err();
    EXPECT_TRUE(absl::StrContains(program.Err(), text)) << program.Err();
    EXPECT_EQ(program.Out(), "");
  };
  expect({Path("basic_ddp"), "--steps=0"}, "basic_ddp: --steps: it is 0, but must be 1 or more");
  expect({Path("basic_ddp"), "--backend=mpi"}, "--backend is mpi, but must be auto, gloo or nccl");
  expect({Path("checkpoint_ddp")}, "--folder is required");
  expect({Path("train_gpt"), "--n-embd=10"}, "n_embd is 10, which is not a multiple of n_head 4");
  expect({Path("train_gpt"), "--optimizer=sgd"}, "--optimizer is sgd, but must be fused, foreach or loop");
}

TEST(ExamplesTest, Help_HasExitCode0) {
  Process program({Path("train_gpt"), "--help"});
  EXPECT_EQ(program.Wait(), 0);
  EXPECT_TRUE(absl::StrContains(program.Out(), "--snapshot")) << program.Out();
}

TEST(SkewedRanksTest, TimeoutLongerThanTheDelay_TheOthersWait) {
  Finished launcher(0, Flags(2, "skewed_ranks", {"--slow-rank=1", "--delay=0.05", "--timeout=100"}));
  EXPECT_EQ(Count(launcher.Out(), "rank 1 was late"), 2) << launcher.Out();
  EXPECT_EQ(Count(launcher.Out(), "rank 0 had its step, with waiting"), 2) << launcher.Out();
}

TEST(SkewedRanksTest, TimeoutShorterThanTheDelay_TheErrorNamesTheSlowRank) {
  Finished launcher(1, Flags(3, "skewed_ranks", {"--slow-rank=1", "--delay=1000", "--timeout=8"}));
  EXPECT_TRUE(absl::StrContains(launcher.Err(), "rank 1")) << launcher.Err();
  EXPECT_FALSE(absl::StrContains(launcher.Out(), "had its step")) << launcher.Out();
}

TEST(CheckpointDdpTest, WhatRankZeroSaved_AllRanksLoad) {
  TempDir dir;
  Finished launcher(0, Flags(2, "checkpoint_ddp", {"--folder=" + dir.File("checkpoints")}));
  EXPECT_EQ(Count(launcher.Out(), "rank 0 has saved step 1"), 1) << launcher.Out();
  for (const char* rank : {"0", "1"}) {
    EXPECT_TRUE(absl::StrContains(launcher.Out(),
                                  absl::StrCat("rank ", rank, " has loaded step 1 onto cpu: the same parameters")))
        << launcher.Out();
  }
}

TEST(ModelParallelTest, TwoDevices_Train) {
  Process program({Path("model_parallel"), "--spawn=2"});
  EXPECT_EQ(program.Wait(), 0) << program.Err();
  EXPECT_EQ(Count(program.Out(), " on cpu and cpu"), 4) << program.Out();
}

TEST(ElasticToyTest, TwoNodes_EveryWorkerMakesItsStep) {
  const std::vector<std::string> flags = {
      "--nnodes=2",    "--nproc_per_node=2", absl::StrCat("--rdzv_endpoint=127.0.0.1:", FreePort()),
      "--rdzv_id=100", "--no-python",        Path("elastic_toy")};
  Launcher a(flags), b(flags);
  EXPECT_EQ(a.Wait(), 0) << a.Err();
  EXPECT_EQ(b.Wait(), 0) << b.Err();
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(Count(a.Out() + b.Out(), absl::StrCat("rank ", rank, " made its step")), 1) << a.Out() << b.Out();
  }
}

}  // namespace
}  // namespace ddprun::testing
