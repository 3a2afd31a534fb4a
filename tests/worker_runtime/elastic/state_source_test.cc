#include "worker_runtime/elastic/core/state_source.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "worker_runtime/elastic/core/step_seed.h"

namespace ddprun {
namespace {

using Points = std::vector<std::optional<CommittedPoint>>;
using Point = CommittedPoint;

TEST(StateSource, LargestStep_ThenLargestPart_ThenLowestRank) {
  EXPECT_EQ(ChooseStateSource(Points{}), std::nullopt);
  EXPECT_EQ(ChooseStateSource(Points{std::nullopt, std::nullopt}), std::nullopt);
  EXPECT_EQ(ChooseStateSource(Points{std::nullopt, Point{0}}), 1) << "a state without any step is one";
  EXPECT_EQ(ChooseStateSource(Points{Point{119}, Point{120}, std::nullopt, Point{120}}), 1);
  EXPECT_EQ(ChooseStateSource(Points{Point{120}, Point{119}}), 0);
  EXPECT_EQ(ChooseStateSource(Points{Point{120}, Point{119, 1}, Point{120, 1}, Point{120, 1}}), 2);
}

TEST(BucketLayoutText, IsReadBack) {
  const BucketLayout layout = {{3, 2}, {1}, {0, 4, 5}};
  EXPECT_EQ(BucketLayoutText(layout), "3 2;1;0 4 5");
  EXPECT_EQ(*FromBucketLayoutText(BucketLayoutText(layout)), layout);
  for (const char* text : {"", "1;;2", "1 x", "-1"}) {
    EXPECT_TRUE(absl::IsDataLoss(FromBucketLayoutText(text).status())) << text;
  }
}

TEST(StepSeed, DiffersWithEachArgument) {
  std::set<uint64_t> seeds;
  for (uint64_t seed = 0; seed < 10; ++seed) {
    for (int64_t step = 0; step < 100; ++step) {
      for (int rank = 0; rank < 10; ++rank) seeds.insert(StepSeed(seed, step, rank));
    }
  }
  EXPECT_EQ(seeds.size(), 10 * 100 * 10);
  EXPECT_EQ(StepSeed(1, 2, 3), StepSeed(1, 2, 3));
}

}  // namespace
}  // namespace ddprun
