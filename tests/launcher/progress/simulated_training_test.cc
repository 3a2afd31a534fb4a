// Whole runs on simulated time: no false alarm, and every hang is found and named.
#include "tests/launcher/progress/simulated_training.h"

#include <gtest/gtest.h>

#include <random>

namespace ddprun::launcher {
namespace {

constexpr uint32_t kSeeds = 60;

TEST(SimulatedTrainingTest, SlowFirstStepCheckpointsAndEvaluations_NoAlarm) {
  for (uint32_t seed = 0; seed < kSeeds; ++seed) {
    SimulatedTraining training;
    training.seed = seed;
    training.ranks = 1 + static_cast<int32_t>(seed % 8);
    training.step = absl::Milliseconds(20 << (seed % 9));  // up to 5 s
    const SimulatedTraining::Result result = training.Run();
    EXPECT_TRUE(result.hangs.empty()) << "seed " << seed << ": rank " << result.hangs[0].behind[0].local_rank << " in "
                                      << result.hangs[0].behind[0].phase << " of step "
                                      << result.hangs[0].behind[0].step;
    EXPECT_TRUE(result.stragglers.empty()) << "seed " << seed;
  }
}

TEST(SimulatedTrainingTest, PlantedHang_IsFoundWithinItsLimitAndNamed) {
  for (uint32_t seed = 0; seed < kSeeds; ++seed) {
    std::mt19937 random(seed);
    SimulatedTraining training;
    training.seed = seed;
    training.ranks = 2 + static_cast<int32_t>(seed % 7);
    const char* const phases[] = {"data", "forward", "optimizer"};
    training.hang = {static_cast<int32_t>(random() % training.ranks), static_cast<int64_t>(30 + random() % 500),
                     phases[random() % 3]};
    const SimulatedTraining::Result result = training.Run();
    ASSERT_FALSE(result.hangs.empty()) << "seed " << seed;
    const effect::Hang& found = result.hangs.front();
    ASSERT_EQ(found.behind.size(), 1u) << "seed " << seed;
    EXPECT_EQ(found.behind[0].local_rank, training.hang->rank) << "seed " << seed;
    EXPECT_EQ(found.behind[0].step, training.hang->step) << "seed " << seed;
    EXPECT_EQ(found.behind[0].phase, training.hang->phase) << "seed " << seed;
    EXPECT_EQ(found.waiting.size(), static_cast<size_t>(training.ranks - 1)) << "seed " << seed;
    EXPECT_LE(result.found_after, found.behind[0].limit) << "seed " << seed;
    // One second is the minimum limit; the phases take a tenth of it.
    EXPECT_LE(found.behind[0].limit, absl::Seconds(2)) << "seed " << seed;
  }
}

TEST(SimulatedTrainingTest, HangInBackward_AllAreNamed) {
  for (uint32_t seed = 0; seed < kSeeds; ++seed) {
    SimulatedTraining training;
    training.seed = seed;
    training.hang = {1, 200 + seed, "backward"};
    const SimulatedTraining::Result result = training.Run();
    ASSERT_FALSE(result.hangs.empty()) << "seed " << seed;
    EXPECT_EQ(result.hangs[0].behind.size(), 4u) << "seed " << seed;
    EXPECT_LE(result.found_after, absl::Seconds(10)) << "seed " << seed;
  }
}

// Without phases, rare long steps look like hangs: the first ones raise an alarm, later ones do not.
TEST(SimulatedTrainingTest, NoPhases_NoMoreAlarmsThanKindsOfLongSteps) {
  for (uint32_t seed = 0; seed < kSeeds; ++seed) {
    SimulatedTraining training;
    training.seed = seed;
    training.phases = false;
    training.steps = 2000;
    const SimulatedTraining::Result result = training.Run();
    EXPECT_LE(result.hangs.size(), 3u) << "seed " << seed;
    training.hang = {2, 1950, "data"};
    EXPECT_GT(training.Run().hangs.size(), result.hangs.size()) << "seed " << seed;
  }
}

TEST(SimulatedTrainingTest, FixedLimit_NoAlarmBelowIt) {
  SimulatedTraining training;
  EXPECT_TRUE(training.Run({.fixed_limit = absl::Minutes(10)}).hangs.empty());
  training.hang = {3, 0, "forward"};
  const SimulatedTraining::Result result = training.Run({.fixed_limit = absl::Minutes(10)});
  ASSERT_FALSE(result.hangs.empty());
  EXPECT_EQ(result.hangs[0].behind[0].local_rank, 3);
}

}  // namespace
}  // namespace ddprun::launcher
