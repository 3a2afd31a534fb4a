#include "launcher/progress/store_wait_watch.h"

#include <gtest/gtest.h>

namespace ddprun::launcher {
namespace {

const SteadyTime kStart = SteadyTime::FromStart(absl::Seconds(100));

class StoreWaitWatchTest : public ::testing::Test {
 protected:
  StoreWaitWatchTest() { watch_.StartRound(4); }

  // What is said until then, if these clients wait all the time.
  std::vector<std::string> Until(SteadyTime end, const std::vector<StoreWait>& waits) {
    std::vector<std::string> said;
    while (watch_.NextDeadline() <= end) {
      const std::string text = watch_.OnDeadline(waits, watch_.NextDeadline());
      if (!text.empty()) said.push_back(text);
    }
    return said;
  }

  StoreWaitWatch watch_;
};

TEST_F(StoreWaitWatchTest, LongWait_TheRanksThatWaitAndThatDoNotAreNamed) {
  watch_.OnWaits(kStart);
  const std::vector<std::string> said =
      Until(kStart + absl::Seconds(59), {{1, 0, "barrier", {}}, {2, 1, "barrier", {}}, {3, 2, "barrier", {}}});
  ASSERT_EQ(said.size(), 1u);
  EXPECT_EQ(said[0], "ranks 0-2 have waited 30.0s for key 'barrier' of the store; rank 3 has not requested it");
}

TEST_F(StoreWaitWatchTest, Repetitions_BecomeRarer) {
  watch_.OnWaits(kStart);
  const std::vector<StoreWait> waits = {{1, 0, "barrier", {}}};
  EXPECT_EQ(Until(kStart + absl::Minutes(10), waits).size(), 4u);  // after 0.75, 1.75, 3.75 and 7.75 min
  EXPECT_LE(Until(kStart + absl::Hours(3), waits).size(), 9u);
}

TEST_F(StoreWaitWatchTest, ManyShortWaits_NothingIsSaid) {
  watch_.OnWaits(kStart);
  for (uint64_t number = 1; number < 100; ++number) {
    EXPECT_EQ(watch_.OnDeadline({{number, 0, "key", {}}}, watch_.NextDeadline()), "");
  }
}

TEST_F(StoreWaitWatchTest, NobodyWaitsAnyMore_NothingIsDue) {
  watch_.OnWaits(kStart);
  EXPECT_EQ(watch_.OnDeadline({}, kStart + StoreWaitWatch::kInterval), "");
  EXPECT_EQ(watch_.NextDeadline(), SteadyTime::InfiniteFuture());
}

TEST_F(StoreWaitWatchTest, KeyOfAKnownRank_IsNamed) {
  watch_.OnWaits(kStart);
  const auto said = Until(kStart + absl::Seconds(59), {{1, 0, "key", 2}});
  ASSERT_EQ(said.size(), 1u);
  EXPECT_EQ(said[0],
            "rank 0 has waited 30.0s for key 'key' of the store, which rank 2 sets; ranks 1-3 have not requested it");
}

TEST_F(StoreWaitWatchTest, SeveralKeys_TheLongestWaitIsNamed) {
  watch_.OnWaits(kStart);
  EXPECT_TRUE(Until(kStart + absl::Seconds(15), {{1, 0, "z", {}}}).empty());
  const auto said = Until(kStart + absl::Seconds(59), {{1, 0, "z", {}}, {2, 1, "a", {}}});
  ASSERT_EQ(said.size(), 1u);
  EXPECT_EQ(said[0],
            "rank 0 has waited 30.0s for key 'z' of the store; ranks 1-3 have not requested it; others wait for 1 more "
            "key");
}

TEST_F(StoreWaitWatchTest, UnknownClients_AreCounted) {
  watch_.OnWaits(kStart);
  const auto said = Until(kStart + absl::Seconds(59), {{1, {}, "a\nb", {}}, {2, {}, "a\nb", {}}});
  ASSERT_EQ(said.size(), 1u);
  EXPECT_EQ(said[0].substr(0, 35), "2 clients have waited 30.0s for key");
  EXPECT_EQ(said[0].find('\n'), std::string::npos);
}

TEST_F(StoreWaitWatchTest, OutsideOfARound_NothingIsDue) {
  watch_.EndRound();
  watch_.OnWaits(kStart);
  EXPECT_EQ(watch_.NextDeadline(), SteadyTime::InfiniteFuture());
}

}  // namespace
}  // namespace ddprun::launcher
