#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "absl/strings/str_cat.h"
#include "tests/worker_runtime/testing/rank_processes.h"

namespace ddprun::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string NameOf(RankProcesses& ranks, int rank) {
  return absl::StrCat("rank ", rank, " (host ", HostName(), ", pid ", ranks[rank].pid(), ")");
}

TEST(RankDeath, KilledRank_IsNamedOnAllSurvivors_AlsoThoseThatHadNoConnectionToIt) {
  RankProcesses ranks(5, "loop");
  ASSERT_TRUE(ranks.Ready());
  ranks[2].Signal(SIGKILL);
  for (int rank : {0, 1, 3, 4}) {
    EXPECT_EQ(ranks[rank].Wait(), 1);
    EXPECT_THAT(ranks[rank].Err(), HasSubstr(absl::StrCat("rank ", rank, ": all_reduce (collective #")));
    EXPECT_THAT(ranks[rank].Err(), HasSubstr(NameOf(ranks, 2) + " exited or was killed"));
    EXPECT_THAT(ranks[rank].Err(), Not(HasSubstr("frame #")));
  }
}

TEST(RankDeath, KilledHostOfTheStore_IsNamed) {
  RankProcesses ranks(3, "loop");
  ASSERT_TRUE(ranks.Ready());
  ranks[0].Signal(SIGKILL);
  for (int rank : {1, 2}) {
    EXPECT_EQ(ranks[rank].Wait(), 1);
    EXPECT_THAT(ranks[rank].Err(), HasSubstr(NameOf(ranks, 0) + " exited or was killed"));
  }
}

TEST(RankDeath, OutsideOfEveryWall_TheErrorIsTheSame) {
  RankProcesses ranks(3, "raw");
  ASSERT_TRUE(ranks.Ready());
  ranks[1].Signal(SIGKILL);
  for (int rank : {0, 2}) {
    EXPECT_EQ(ranks[rank].Wait(), 1);
    EXPECT_THAT(ranks[rank].Err(), HasSubstr(absl::StrCat("rank ", rank, ": training (collective #")));
    EXPECT_THAT(ranks[rank].Err(), HasSubstr(NameOf(ranks, 1) + " exited or was killed"));
  }
}

TEST(RankDeath, KilledWhileAsynchronousOperationsAreInFlight_IsNamed) {
  RankProcesses ranks(3, "async");
  ASSERT_TRUE(ranks.Ready());
  for (int rank : {0, 1}) ASSERT_TRUE(ranks[rank].WaitForOut("in flight"));
  ranks[2].Signal(SIGKILL);
  for (int rank : {0, 1}) {
    EXPECT_EQ(ranks[rank].Wait(), 1);
    EXPECT_THAT(ranks[rank].Err(), HasSubstr(absl::StrCat("rank ", rank, ": all_reduce (collective #")));
    EXPECT_THAT(ranks[rank].Err(), HasSubstr(NameOf(ranks, 2) + " exited or was killed"));
    EXPECT_THAT(ranks[rank].Out(), HasSubstr(absl::StrCat("second: rank ", rank, ": all_reduce: the group failed")));
  }
}

TEST(RankDeath, StoppedRank_IsNamedByTheTimeout) {
  RankProcesses ranks(4, "loop", /*timeout_seconds=*/5);
  ASSERT_TRUE(ranks.Ready());
  ranks[1].Signal(SIGSTOP);
  for (int rank : {0, 2, 3}) {
    EXPECT_EQ(ranks[rank].Wait(), 1);
    EXPECT_THAT(ranks[rank].Err(), HasSubstr(NameOf(ranks, 1) + " did not enter this collective or is not responding"));
    EXPECT_THAT(ranks[rank].Err(), Not(HasSubstr("exited or was killed")));
  }
}

TEST(RankDeath, StoppedHostOfTheStore_IsNamedByTheTimeout) {
  RankProcesses ranks(3, "loop", /*timeout_seconds=*/2);
  ASSERT_TRUE(ranks.Ready());
  ranks[0].Signal(SIGSTOP);
  for (int rank : {1, 2}) {
    EXPECT_EQ(ranks[rank].Wait(), 1);
    EXPECT_THAT(ranks[rank].Err(), HasSubstr(NameOf(ranks, 0) + " is not responding"));
    EXPECT_THAT(ranks[rank].Err(), HasSubstr("the store is not reachable either"));
  }
}

TEST(RankDeath, RankInAnotherPlace_IsNamedByTheTimeout) {
  RankProcesses ranks(4, "loop_alone", /*timeout_seconds=*/5);
  ASSERT_TRUE(ranks.Ready());
  for (int rank : {0, 1, 3}) {
    EXPECT_EQ(ranks[rank].Wait(), 1);
    EXPECT_THAT(ranks[rank].Err(), HasSubstr(NameOf(ranks, 2) + " did not enter this collective or is not responding"));
  }
}

TEST(RankDeath, ErrorOfOneRank_ReachesTheOthersWords) {
  RankProcesses ranks(3, "error");
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(ranks[rank].Wait(), 1);
  EXPECT_EQ(ranks[1].Err(), "rank 1: the data of rank 1 are bad\n");
  for (int rank : {0, 2}) {
    EXPECT_THAT(ranks[rank].Err(), HasSubstr(NameOf(ranks, 1) + " aborted the group: the data of rank 1 are bad"));
  }
}

// The host of the store does not answer, as behind a partition of the network. The abort does not wait for it.
TEST(RankDeath, Abort_WhileTheStoreDoesNotAnswer_EndsTheCollectiveAtOnce) {
  RankProcesses ranks(2, "abort", /*timeout_seconds=*/3600);
  ASSERT_TRUE(ranks.Ready());
  ranks[0].Signal(SIGSTOP);
  ranks[1].Signal(SIGUSR1);
  EXPECT_EQ(ranks[1].Wait(), 1);
  EXPECT_THAT(ranks[1].Err(), HasSubstr("aborted: told so by a signal"));
}

TEST(RankDeath, Survivors_MakeANewGroupInTheSameProcess) {
  RankProcesses ranks(3, "reform");
  ASSERT_TRUE(ranks.Ready());
  ranks[1].Signal(SIGKILL);
  for (int rank : {0, 2}) {
    EXPECT_EQ(ranks[rank].Wait(), 0) << ranks[rank].Err();
    EXPECT_THAT(ranks[rank].Out(), HasSubstr(NameOf(ranks, 1) + " exited or was killed"));
    EXPECT_THAT(ranks[rank].Out(), HasSubstr("new sum 2"));
  }
}

TEST(RankDeath, RankThatNeverCame_IsNamed) {
  RankProcesses ranks(3, "loop", /*timeout_seconds=*/3, {}, /*left_out=*/{2});
  for (int rank : {0, 1}) {
    EXPECT_EQ(ranks[rank].Wait(), 1);
    EXPECT_THAT(ranks[rank].Err(), HasSubstr("timed out after 3s waiting for rank 2; 2 of 3 joined"));
  }
}

TEST(RankDeath, TensorsOfDifferentSizes_EndWithAnExplanation) {
  RankProcesses ranks(3, "shapes");
  std::string errors;
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_NE(ranks[rank].Wait(), 0);
    errors += ranks[rank].Err();
  }
  EXPECT_THAT(errors, HasSubstr("the ranks passed tensors of different sizes or dtypes"));
}

TEST(RankDeath, TensorsOfDifferentSizes_AreToldApartInDetail) {
  RankProcesses ranks(3, "shapes", 30, {{"TORCH_DISTRIBUTED_DEBUG", "DETAIL"}});
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(ranks[rank].Wait(), 1);
    EXPECT_THAT(ranks[rank].Err(), HasSubstr("TensorShape=[20]"));
    EXPECT_THAT(ranks[rank].Err(), HasSubstr("TensorShape=[10]"));
  }
}

}  // namespace
}  // namespace ddprun::testing
