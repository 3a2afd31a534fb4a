// Ranks are processes (rank_program): one of them is killed, stopped, or does something else than the others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "tests/worker_runtime/testing/rank_processes.h"

namespace ddprun::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct Death {
  const char* name;
  int ranks;
  const char* behaviour;  // argument of rank_program
  int victim;
  int signal;          // sent to the victim
  const char* errors;  // error of each other rank, separated by |; R is its number, V the victim's name
  const char* outputs = "";
  int exit_code = 1;
  int timeout_seconds = 30;
};

constexpr char kKilledInAllReduce[] = "rank R: all_reduce (collective #|V exited or was killed";
constexpr char kMissing[] = "V did not enter this collective or is not responding";

class RankDeathTest : public ::testing::TestWithParam<Death> {};

TEST_P(RankDeathTest, AllReduce_RankDies_EachSurvivorNamesIt) {
  const Death& death = GetParam();
  RankProcesses ranks(death.ranks, death.behaviour, death.timeout_seconds);
  ASSERT_TRUE(ranks.Ready());
  for (int rank = 0; rank < death.ranks; ++rank) {
    EXPECT_TRUE(rank == death.victim || death.behaviour != absl::string_view("async") ||
                ranks[rank].WaitForOut("in flight"));
  }
  ranks[death.victim].Signal(death.signal);
  for (int rank = 0; rank < death.ranks; ++rank) {
    if (rank == death.victim) continue;
    EXPECT_EQ(ranks[rank].Wait(), death.exit_code) << ranks[rank].Err();
    for (const bool out : {false, true}) {
      for (const absl::string_view pattern : absl::StrSplit(out ? death.outputs : death.errors, '|')) {
        EXPECT_THAT(
            out ? ranks[rank].Out() : ranks[rank].Err(),
            HasSubstr(absl::StrReplaceAll(pattern, {{"R", absl::StrCat(rank)}, {"V", ranks.NameOf(death.victim)}})));
      }
    }
    const char* const unwanted = death.errors == kMissing ? "exited or was killed" : "frame #";
    EXPECT_THAT(ranks[rank].Err(), Not(HasSubstr(unwanted)));
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, RankDeathTest,
    ::testing::Values(
        Death{"Killed", 5, "loop", 2, SIGKILL, kKilledInAllReduce},  // also without a connection to the victim
        Death{"KilledHostOfTheStore", 3, "loop", 0, SIGKILL, "V exited or was killed"},
        Death{"KilledInC10dsOwnCall", 3, "raw", 1, SIGKILL, "rank R: training (collective #|V exited or was killed"},
        Death{"KilledAsync", 3, "async", 2, SIGKILL, kKilledInAllReduce,
              "second: rank R: all_reduce: the group failed"},
        Death{"KilledAndReFormed", 3, "reform", 1, SIGKILL, "", "V exited or was killed|new sum 2", 0},
        Death{"Stopped", 4, "loop", 1, SIGSTOP, kMissing, "", 1, 12},
        Death{"StoppedHostOfTheStore", 3, "loop", 0, SIGSTOP, "V is not responding|the store is not reachable either",
              "", 1, 2},
        Death{"InAnotherPlace", 4, "loop_alone", 2, 0, kMissing, "", 1, 12}),  // rank 2 sleeps outside the loop
    [](const auto& test) { return std::string(test.param.name); });

TEST(RankDeath, AllReduce_OtherRankFailed_ErrorQuotesItsReason) {
  RankProcesses ranks(3, "error");
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(ranks[rank].Wait(), 1);
  EXPECT_EQ(ranks[1].Err(), "rank 1: the data of rank 1 are bad\n");
  for (int rank : {0, 2}) {
    EXPECT_THAT(ranks[rank].Err(), HasSubstr(ranks.NameOf(1) + " aborted the group: the data of rank 1 are bad"));
  }
}

// The host of the store does not answer, as behind a network partition. The abort does not wait for it.
TEST(RankDeath, Abort_StoreDoesNotAnswer_EndsTheCollectiveAtOnce) {
  RankProcesses ranks(2, "abort", /*timeout_seconds=*/3600);
  ASSERT_TRUE(ranks.Ready());
  ranks[0].Signal(SIGSTOP);
  ranks[1].Signal(SIGUSR1);
  EXPECT_EQ(ranks[1].Wait(), 1);
  EXPECT_THAT(ranks[1].Err(), HasSubstr("aborted: told so by a signal"));
}

TEST(RankDeath, AllReduce_RankKilledInDebugDetail_EachSurvivorNamesIt) {
  for (const int victim : {0, 2}) {
    RankProcesses ranks(3, "loop", 30, {{"TORCH_DISTRIBUTED_DEBUG", "DETAIL"}});
    ASSERT_TRUE(ranks.Ready());
    ranks[victim].Signal(SIGKILL);
    for (const int rank : {0, 1, 2}) {
      if (rank == victim) continue;
      EXPECT_EQ(ranks[rank].Wait(), 1);
      EXPECT_THAT(ranks[rank].Err(), HasSubstr(ranks.NameOf(victim)));
    }
  }
}

TEST(RankDeath, Create_RankNeverJoins_ErrorNamesIt) {
  RankProcesses ranks(3, "loop", /*timeout_seconds=*/3, {}, /*left_out=*/{2});
  for (int rank : {0, 1}) {
    EXPECT_EQ(ranks[rank].Wait(), 1);
    EXPECT_THAT(ranks[rank].Err(), HasSubstr("timed out after 3s waiting for rank 2; 2 of 3 joined"));
  }
}

TEST(RankDeath, AllReduce_SizesDiffer_ErrorExplainsThem) {
  for (const bool detail : {false, true}) {
    RankProcesses ranks(3, "shapes", 30, {{"TORCH_DISTRIBUTED_DEBUG", detail ? "DETAIL" : ""}});
    std::string errors;
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_NE(ranks[rank].Wait(), 0);
      errors += ranks[rank].Err();
      if (!detail) continue;
      EXPECT_THAT(ranks[rank].Err(), HasSubstr("TensorShape=[20]"));
      EXPECT_THAT(ranks[rank].Err(), HasSubstr("TensorShape=[10]"));
    }
    if (!detail) {
      EXPECT_THAT(errors, HasSubstr("the ranks passed tensors of different sizes or dtypes"));
    }
  }
}

}  // namespace
}  // namespace ddprun::testing
