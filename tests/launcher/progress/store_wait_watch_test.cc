#include "launcher/progress/store_wait_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ddprun::launcher {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

const SteadyTime kStart = SteadyTime::FromStart(absl::Seconds(100));

class StoreWaitWatchTest : public ::testing::Test {
 protected:
  StoreWaitWatchTest() { watch_.StartRound(4); }

  // Reports until `end` while these clients wait throughout.
  std::vector<std::string> Until(SteadyTime end, const std::vector<StoreWait>& waits) {
    std::vector<std::string> said;
    while (watch_.NextDeadline() <= end) {
      const std::string text = watch_.OnDeadline(waits, watch_.NextDeadline());
      if (!text.empty()) said.push_back(text);
    }
    return said;
  }
  // The only report of a minute.
  std::string ForAMinute(const std::vector<StoreWait>& waits) {
    const std::vector<std::string> said = Until(kStart + absl::Seconds(59), waits);
    EXPECT_EQ(said.size(), 1u);
    return said.empty() ? "" : said[0];
  }

  StoreWaitWatch watch_;
};

TEST_F(StoreWaitWatchTest, LongWait_WaitingAndMissingRanksAreNamed) {
  watch_.OnWaits(kStart);
  EXPECT_EQ(ForAMinute({{1, 0, "barrier", {}}, {2, 1, "barrier", {}}, {3, 2, "barrier", {}}}),
            "ranks 0-2 have waited 30.0s for key 'barrier' of the store; rank 3 has not requested it");
}

TEST_F(StoreWaitWatchTest, Repetitions_BecomeRarer) {
  watch_.OnWaits(kStart);
  const std::vector<StoreWait> waits = {{1, 0, "barrier", {}}};
  EXPECT_EQ(Until(kStart + absl::Minutes(10), waits).size(), 4u);  // after 0.75, 1.75, 3.75 and 7.75 min
  EXPECT_LE(Until(kStart + absl::Hours(3), waits).size(), 9u);
}

TEST_F(StoreWaitWatchTest, ManyShortWaits_NothingIsReported) {
  watch_.OnWaits(kStart);
  for (uint64_t number = 1; number < 100; ++number) {
    EXPECT_EQ(watch_.OnDeadline({{number, 0, "key", {}}}, watch_.NextDeadline()), "");
  }
}

TEST_F(StoreWaitWatchTest, NoMoreWaitsOrRoundOver_HasNoDeadline) {
  watch_.OnWaits(kStart);
  EXPECT_EQ(watch_.OnDeadline({}, kStart + StoreWaitWatch::kInterval), "");
  EXPECT_EQ(watch_.NextDeadline(), SteadyTime::InfiniteFuture());
  watch_.EndRound();
  watch_.OnWaits(kStart);
  EXPECT_EQ(watch_.NextDeadline(), SteadyTime::InfiniteFuture());
}

TEST_F(StoreWaitWatchTest, KeyOfAKnownRank_IsNamed) {
  watch_.OnWaits(kStart);
  EXPECT_THAT(ForAMinute({{1, 0, "key", 2}}),
              AllOf(HasSubstr("rank 0 "), HasSubstr("'key'"), HasSubstr("rank 2 sets")));
}

TEST_F(StoreWaitWatchTest, SeveralKeys_TheLongestWaitIsNamed) {
  watch_.OnWaits(kStart);
  EXPECT_TRUE(Until(kStart + absl::Seconds(15), {{1, 0, "z", {}}}).empty());
  EXPECT_THAT(ForAMinute({{1, 0, "z", {}}, {2, 1, "a", {}}}),
              AllOf(HasSubstr("rank 0 has waited 30.0s"), HasSubstr("'z'"), HasSubstr("1 more key")));
}

TEST_F(StoreWaitWatchTest, UnknownClients_AreCounted) {
  watch_.OnWaits(kStart);
  EXPECT_THAT(ForAMinute({{1, {}, "a\nb", {}}, {2, {}, "a\nb", {}}}),
              AllOf(StartsWith("2 clients have waited 30.0s for key"), Not(HasSubstr("\n"))));
}

}  // namespace
}  // namespace ddprun::launcher
