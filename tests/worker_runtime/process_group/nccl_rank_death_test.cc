// Ranks are processes that communicate over NCCL on simulated GPUs; one of them fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/simgpu/simulated_gpus.h"
#include "tests/worker_runtime/testing/rank_processes.h"

namespace ddprun::testing {
namespace {

using ::testing::HasSubstr;

using Environment = std::map<std::string, std::string>;

RankProcesses Start(int ranks, const std::string& behaviour, int timeout_seconds, const Environment& more = {}) {
  return RankProcesses(ranks, behaviour, timeout_seconds, SimulatedGpus(ranks, more), {}, "cuda");
}

void ExpectSurvivorsName(RankProcesses& ranks, int victim) {
  for (int rank = 0; rank < ranks.size(); ++rank) {
    if (rank == victim) continue;
    EXPECT_EQ(ranks[rank].Wait(), 1) << rank;
    EXPECT_THAT(ranks[rank].Err(), HasSubstr(absl::StrCat("rank ", rank, ": ")));
    EXPECT_THAT(ranks[rank].Err(), HasSubstr(ranks.NameOf(victim)));
  }
}

// NCCL reports a rank on another host, and may not report one on this host: then the timeout ends the collective.
TEST(NcclRankDeath, AllReduce_RankKilled_EachSurvivorNamesIt) {
  for (const int n : {2, 4}) {
    for (const char* remote : {"1", "0"}) {
      RankProcesses ranks = Start(n, "loop", *remote == '1' ? 300 : 3, {{"SIMNCCL_REMOTE_ERROR", remote}});
      ASSERT_TRUE(ranks.Ready());
      ranks[1].Signal(SIGKILL);
      ExpectSurvivorsName(ranks, 1);
    }
  }
}

TEST(NcclRankDeath, AllReduce_RankDoesNotEnter_TimeoutNamesIt) {
  RankProcesses ranks = Start(4, "loop_alone", 3);
  ASSERT_TRUE(ranks.Ready());
  ExpectSurvivorsName(ranks, 2);
}

TEST(NcclRankDeath, AllReduce_RankIsStopped_TimeoutNamesIt) {
  RankProcesses ranks = Start(2, "loop", 3);
  ASSERT_TRUE(ranks.Ready());
  ranks[1].Signal(SIGSTOP);
  ExpectSurvivorsName(ranks, 1);
}

// NCCL gives no notice of the death: the others end at the timeout.
TEST(NcclRankDeath, Create_RankKilledMeanwhile_OthersEndAtTheTimeout) {
  RankProcesses ranks = Start(2, "loop", 5, {{"SIMCUDA_DIE", "1:create:1"}});
  EXPECT_EQ(ranks[1].Wait(), 128 + SIGKILL);
  ExpectSurvivorsName(ranks, 1);
}

TEST(NcclRankDeath, Abort_DuringACollective_EndsItAtOnce) {
  RankProcesses ranks = Start(2, "abort", /*timeout_seconds=*/3600);
  ASSERT_TRUE(ranks.Ready());
  ranks[1].Signal(SIGUSR1);
  EXPECT_EQ(ranks[1].Wait(), 1);
  EXPECT_THAT(ranks[1].Err(), HasSubstr("aborted: told so by a signal"));
}

// Rank 1 alone learns of it from its device.
TEST(NcclRankDeath, AllReduce_DeviceBreaks_OthersNameItsRank) {
  RankProcesses ranks = Start(2, "loop", 300, {{"SIMCUDA_FAULT", "1:middle:20"}});
  EXPECT_EQ(ranks[1].Wait(), 1);
  EXPECT_THAT(ranks[1].Err(), HasSubstr("an illegal memory access was encountered"));
  ExpectSurvivorsName(ranks, 1);
}

}  // namespace
}  // namespace ddprun::testing
