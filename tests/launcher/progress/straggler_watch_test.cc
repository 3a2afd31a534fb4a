#include <gtest/gtest.h>

#include <numeric>

#include "launcher/progress/progress_watch.h"

namespace ddprun::launcher {
namespace {

// Runs steps in which each rank computes for its time in `forward` and then waits for the slowest in backward.
std::vector<Straggler> Steps(StragglerWatch* watch, const std::vector<absl::Duration>& forward, int steps) {
  std::vector<int32_t> ranks(forward.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  const absl::Duration step = *std::max_element(forward.begin(), forward.end()) + absl::Milliseconds(50);
  std::vector<Straggler> found;
  for (int i = 0; i < steps; ++i) {
    for (const int32_t rank : ranks) {
      watch->OnPhase(rank, "data", forward[rank] / 4);
      watch->OnPhase(rank, "forward", 3 * forward[rank] / 4);
      watch->OnPhase(rank, "backward", step - forward[rank]);
      watch->OnPhase(rank, "optimizer", absl::Milliseconds(10));
      for (const Straggler& one : watch->OnStep(rank, true, ranks)) found.push_back(one);
    }
  }
  return found;
}

TEST(StragglerWatchTest, SlowRank_IsNamedWithItsRatio) {
  StragglerWatch watch(4);
  const auto slow = absl::Milliseconds(180);
  const auto fast = absl::Milliseconds(100);
  const std::vector<Straggler> found = Steps(&watch, {fast, fast, slow, fast}, StragglerWatch::kSteps);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].local_rank, 2);
  EXPECT_EQ(found[0].own, slow);
  EXPECT_NEAR(found[0].ratio(), 1.8, 1e-9);
}

TEST(StragglerWatchTest, TwoRanks_SlowerOneIsNamedAfterEnoughSteps) {
  StragglerWatch watch(2);
  const std::vector<absl::Duration> forward = {absl::Milliseconds(100), absl::Milliseconds(300)};
  EXPECT_TRUE(Steps(&watch, forward, StragglerWatch::kSteps - 1).empty());
  const std::vector<Straggler> found = Steps(&watch, forward, 1);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].local_rank, 1);
}

TEST(StragglerWatchTest, SeveralStragglers_SlowestComesFirst) {
  StragglerWatch watch(5);
  const auto fast = absl::Milliseconds(100);
  const std::vector<Straggler> found = Steps(&watch, {2 * fast, fast, fast, 3 * fast, fast}, StragglerWatch::kSteps);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].local_rank, 3);
  EXPECT_EQ(found[1].local_rank, 0);
}

TEST(StragglerWatchTest, BelowTheRatioOrShareOfStep_NoRankIsNamed) {
  StragglerWatch small_ratio(2);
  EXPECT_TRUE(Steps(&small_ratio, {absl::Milliseconds(100), absl::Milliseconds(140)}, 100).empty());
  // Twice as long, but a fiftieth of the step.
  StragglerWatch no_weight(2);
  EXPECT_TRUE(Steps(&no_weight, {absl::Milliseconds(1), absl::Milliseconds(2)}, 100).empty());
}

TEST(StragglerWatchTest, RarePauses_MakeNoStraggler) {
  StragglerWatch watch(2);
  const auto usual = absl::Milliseconds(100);
  for (int i = 0; i < 20; ++i) {
    EXPECT_TRUE(Steps(&watch, {usual, usual}, 9).empty());
    EXPECT_TRUE(Steps(&watch, {usual, absl::Seconds(20)}, 1).empty());
  }
}

TEST(StragglerWatchTest, NoSynchronizingPhase_NoRankIsNamed) {
  StragglerWatch watch(2);
  for (int i = 0; i < 100; ++i) {
    for (const int32_t rank : {0, 1}) {
      watch.OnPhase(rank, "", absl::Seconds(rank + 1));
      EXPECT_TRUE(watch.OnStep(rank, true, {0, 1}).empty());
    }
  }
}

TEST(StragglerWatchTest, StepsThatDoNotCount_AreIgnored) {
  StragglerWatch watch(2);
  for (int i = 0; i < StragglerWatch::kSteps; ++i) {
    for (const int32_t rank : {0, 1}) {
      watch.OnPhase(rank, "forward", absl::Seconds(rank + 1));
      watch.OnPhase(rank, "backward", absl::Seconds(2 - rank));
      EXPECT_TRUE(watch.OnStep(rank, i > 0, {0, 1}).empty());
    }
  }
}

TEST(IsSynchronizingTest, Names_AreMatched) {
  for (const char* name : {"backward", "Backward", "all_reduce", "all-reduce", "barrier", "wait", "grad_sync"}) {
    EXPECT_TRUE(IsSynchronizing(name)) << name;
  }
  for (const char* name : {"", "forward", "data", "optimizer", "checkpoint"})
    EXPECT_FALSE(IsSynchronizing(name)) << name;
}

}  // namespace
}  // namespace ddprun::launcher
