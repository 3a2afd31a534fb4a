#include "worker_runtime/elastic/core/shared_decisions.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <set>
#include <vector>

namespace ddprun::testing {
namespace {

using Points = std::vector<std::optional<CommittedPoint>>;
using Point = CommittedPoint;

TEST(StateSource, ChooseStateSource_SeveralStates_LargestStepThenPartThenLowestRank) {
  EXPECT_EQ(ChooseStateSource(Points{}), std::nullopt);
  EXPECT_EQ(ChooseStateSource(Points{std::nullopt, std::nullopt}), std::nullopt);
  EXPECT_EQ(ChooseStateSource(Points{std::nullopt, Point{0}}), 1) << "a state without any step is one";
  EXPECT_EQ(ChooseStateSource(Points{Point{119}, Point{120}, std::nullopt, Point{120}}), 1);
  EXPECT_EQ(ChooseStateSource(Points{Point{120}, Point{119}}), 0);
  EXPECT_EQ(ChooseStateSource(Points{Point{120}, Point{119, 1}, Point{120, 1}, Point{120, 1}}), 2);
}

TEST(BucketLayoutText, FromBucketLayoutText_AnyLayout_RoundTrips) {
  const BucketLayout layout = {{3, 2}, {1}, {0, 4, 5}};
  EXPECT_EQ(BucketLayoutText(layout), "3 2;1;0 4 5");
  EXPECT_EQ(*FromBucketLayoutText(BucketLayoutText(layout)), layout);
  for (const char* text : {"", "1;;2", "1 x", "-1"}) {
    EXPECT_TRUE(absl::IsDataLoss(FromBucketLayoutText(text).status())) << text;
  }
}

TEST(StepSeed, StepSeed_AnyArgumentDiffers_IsDifferent) {
  std::set<uint64_t> seeds;
  for (uint64_t seed = 0; seed < 10; ++seed) {
    for (int64_t step = 0; step < 100; ++step) {
      for (int rank = 0; rank < 10; ++rank) seeds.insert(StepSeed(seed, step, rank));
    }
  }
  EXPECT_EQ(seeds.size(), 10 * 100 * 10);
  EXPECT_EQ(StepSeed(1, 2, 3), StepSeed(1, 2, 3));
}

constexpr absl::Duration kInterval = absl::Milliseconds(50);

// Simulates steps of duration `one` with three phases. Returns the steps before which the ranks agreed.
std::vector<int64_t> Train(AgreementSchedule* schedule, int64_t first, int64_t last, absl::Duration one) {
  std::vector<int64_t> agreed;
  int64_t before = first;
  for (int64_t step = first; step < last; ++step) {
    if (!schedule->Due(step)) continue;
    schedule->Agreed(step, (step - before) * one, 3 * (step - before));
    before = step;
    agreed.push_back(step);
  }
  return agreed;
}

TEST(AgreementSchedule, Due_ShortSteps_OncePerInterval) {
  AgreementSchedule schedule(kInterval);
  schedule.StartRound(7);
  EXPECT_EQ(Train(&schedule, 7, 75, absl::Milliseconds(5)),
            (std::vector<int64_t>{7, 8, 10, 14, 22, 32, 42, 52, 62, 72}));
}

TEST(AgreementSchedule, Due_StepsOfAnyLength_StaysWithinBothLimits) {
  for (const int64_t microseconds : {1, 100, 700, 999, 3000, 20000, 26000, 49999, 50000, 60000, 5000000}) {
    const absl::Duration one = absl::Microseconds(microseconds);
    AgreementSchedule schedule(kInterval);
    schedule.StartRound(0);
    std::vector<int64_t> agreed = Train(&schedule, 0, 1000, one);
    ASSERT_GT(agreed.size(), 10u);
    for (size_t i = 9; i < agreed.size(); ++i) {
      const int64_t steps = agreed[i] - agreed[i - 1];
      EXPECT_TRUE(steps * one >= kInterval || steps == AgreementSchedule::kMostSteps) << one << ": " << steps;
      EXPECT_TRUE(steps == 1 || (steps - 1) * one < kInterval) << one << ": " << steps;
    }
  }
}

TEST(AgreementSchedule, Due_IntervalZero_BeforeEachStep) {
  AgreementSchedule schedule(absl::ZeroDuration());
  schedule.StartRound(3);
  EXPECT_EQ(Train(&schedule, 3, 8, absl::Milliseconds(1)), (std::vector<int64_t>{3, 4, 5, 6, 7}));
}

TEST(AgreementSchedule, Due_StepsGetLonger_AgreesMoreOften) {
  AgreementSchedule schedule(kInterval);
  schedule.StartRound(0);
  const int64_t last = Train(&schedule, 0, 500, absl::Milliseconds(1)).back();
  schedule.Agreed(last + 50, absl::Seconds(50), 150);
  EXPECT_TRUE(schedule.Due(last + 51));
}

TEST(AgreementSchedule, StartRound_AfterLongSteps_MeasuresAgain) {
  AgreementSchedule schedule(kInterval);
  schedule.StartRound(0);
  Train(&schedule, 0, 500, absl::Milliseconds(1));
  schedule.StartRound(500);
  EXPECT_TRUE(schedule.Due(500));
  EXPECT_TRUE(schedule.reports_phases());
  // A newly started rank.
  AgreementSchedule fresh(kInterval);
  fresh.StartRound(500);
  EXPECT_EQ(Train(&schedule, 500, 900, absl::Milliseconds(2)), Train(&fresh, 500, 900, absl::Milliseconds(2)));
}

// The reports per second stay below the limit of the link; otherwise the ranks would lose different reports.
TEST(AgreementSchedule, ReportsStep_ShorterSteps_ReportsPhasesThenStepsThenSomeSteps) {
  std::map<bool, int> with_phases;
  for (const int64_t microseconds : {50, 400, 1500, 3000, 7000, 8000, 20000, 300000}) {
    AgreementSchedule schedule(kInterval);
    schedule.StartRound(0);
    Train(&schedule, 0, 2000, absl::Microseconds(microseconds));
    int64_t reports = 0;
    constexpr int64_t kSteps = 1024;
    for (int64_t step = 2048; step < 2048 + kSteps; ++step) {
      reports += schedule.reports_phases() ? 3 : schedule.ReportsStep(step) ? 1 : 0;
    }
    EXPECT_GT(reports, 0);
    EXPECT_LE(reports * 1000000, AgreementSchedule::kMostReports * microseconds * kSteps) << microseconds;
    EXPECT_EQ(schedule.reports_phases(), microseconds > 7000) << microseconds;
  }
}

}  // namespace
}  // namespace ddprun::testing
