#include "rendezvous/core/restart_budget.h"

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "rendezvous/core/limits.h"
#include "tests/testing/text_proto.h"

namespace ddprun::rendezvous {
namespace {

using Answer = RestartBudget::Answer;

constexpr SteadyTime At(absl::Duration since) { return SteadyTime::FromStart(since); }

WorkerFailure FailureAt(std::optional<int64_t> step, int32_t rank = 0) {
  WorkerFailure failure = NewFailure();
  failure.set_rank(rank);
  if (step) failure.set_step(*step);
  return failure;
}

TEST(RestartBudgetTest, Charge_NoWindowCountsTheWholeLife_AWindowForgetsWhatLiesBeforeIt) {
  const std::vector<Answer> three = {Answer::kRestart, Answer::kRestart, Answer::kSpent};
  const std::vector<Answer> four = {Answer::kRestart, Answer::kRestart, Answer::kRestart, Answer::kSpent};
  const struct {
    const char* settings;
    std::vector<int> minutes;  // of the failures
    std::vector<Answer> answers;
  } cases[] = {{"max_restarts: 2", {0, 6000, 54000}, three},
               {"max_restarts: 2 restart_window { seconds: 3600 }", {0, 30, 60, 89}, four}};
  for (const auto& [settings, minutes, answers] : cases) {
    RestartBudget budget(TextProto(settings, DefaultSettings()));
    std::vector<Answer> given;
    for (const int minute : minutes) given.push_back(budget.Charge(FailureAt({}), At(absl::Minutes(minute))));
    EXPECT_EQ(given, answers);
    EXPECT_EQ(budget.used(), static_cast<int>(minutes.size()) - 1) << "of the job's life";
  }
}

TEST(RestartBudgetTest, Charge_LargestCounts_DoNotOverflow) {
  RestartBudget budget(TextProto("max_restarts: 2 restart_window { seconds: 3600 }", DefaultSettings()));
  budget.LearnUsed(INT32_MAX);
  RestartRecord record{.last_age = absl::ZeroDuration(), .series = INT32_MAX, .last_step = 7};
  record.last_rank = 0;
  record.failures_at_step = INT32_MAX;
  budget.Restore(record, At(absl::ZeroDuration()));
  EXPECT_EQ(budget.Charge(FailureAt(8), At(absl::ZeroDuration())), Answer::kRestart);
  EXPECT_EQ(budget.used(), kMaxRestarts + 1);
  EXPECT_GT(budget.Record(At(absl::ZeroDuration())).series, 0);
  EXPECT_EQ(budget.Backoff(), absl::ZeroDuration());
}

TEST(RestartBudgetTest, LearnUsed_IsBoundedByTheLimitOfAWholeLife) {
  RestartBudget life(TextProto("max_restarts: 2", DefaultSettings()));
  EXPECT_TRUE(life.LearnUsed(7));
  EXPECT_EQ(life.used(), 2);
  EXPECT_FALSE(life.LearnUsed(1));
  EXPECT_EQ(life.Charge(FailureAt({}), SteadyTime()), Answer::kSpent);
  RestartBudget window(TextProto("max_restarts: 2 restart_window { seconds: 3600 }", DefaultSettings()));
  EXPECT_TRUE(window.LearnUsed(7));
  EXPECT_EQ(window.used(), 7);
  EXPECT_EQ(window.Charge(FailureAt({}), SteadyTime()), Answer::kRestart);
}

TEST(RestartBudgetTest, Charge_SameRankAtSameStepInARow_IsNoProgress) {
  RestartBudget budget(TextProto("max_restarts: 99", DefaultSettings()));
  constexpr std::nullopt_t kNowhere = std::nullopt;
  const std::pair<std::optional<int64_t>, int32_t> failures[] = {{5, 0},        {5, 0},        {5, 1}, {5, 0},
                                                                 {5, 0},        {6, 0},        {6, 0}, {kNowhere, 0},
                                                                 {kNowhere, 0}, {kNowhere, 0}, {0, 0}, {0, 0}};
  for (const auto& [step, rank] : failures) {
    EXPECT_EQ(budget.Charge(FailureAt(step, rank), SteadyTime()), Answer::kRestart);
  }
  EXPECT_EQ(budget.Charge(FailureAt(0), SteadyTime()), Answer::kNoProgress);
  EXPECT_EQ(budget.failures_at_step(), 3);
}

TEST(RestartBudgetTest, Charge_NoLimitAtAStep_GoesOn) {
  RestartBudget budget(TextProto("max_restarts: 9 max_failures_at_step: 0", DefaultSettings()));
  for (int i = 0; i < 9; ++i) EXPECT_EQ(budget.Charge(FailureAt(5), SteadyTime()), Answer::kRestart);
  EXPECT_EQ(budget.Charge(FailureAt(5), SteadyTime()), Answer::kSpent);
}

TEST(RestartBudgetTest, Backoff_DoublesInASeries) {
  RestartBudget budget(TextProto("max_restarts: 99 restart_backoff { seconds: 1 }", DefaultSettings()));
  SteadyTime now = At(absl::Hours(1));
  for (const int seconds : {1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300}) {
    budget.Charge(FailureAt({}), now);
    EXPECT_EQ(budget.Backoff(), absl::Seconds(seconds));
    now = now + RestartBudget::kSeriesGap;
  }
  budget.Charge(FailureAt({}), now + absl::Seconds(1));
  EXPECT_EQ(budget.Backoff(), absl::Seconds(1)) << "it went well for longer";
  RestartBudget none(TextProto("max_restarts: 99", DefaultSettings()));
  none.Charge(FailureAt({}), now);
  EXPECT_EQ(none.Backoff(), absl::ZeroDuration());
  RestartBudget long_one(TextProto("max_restarts: 99 restart_backoff { seconds: 420 }", DefaultSettings()));
  for (int i = 0; i < 3; ++i) {
    long_one.Charge(FailureAt({}), now);
    EXPECT_EQ(long_one.Backoff(), absl::Minutes(7));
  }
}

// Protocol 4.4.
TEST(RestartBudgetTest, Restore_GoesOnOnAnotherServer) {
  const auto settings =
      TextProto("max_restarts: 2 restart_window { seconds: 3600 } restart_backoff { seconds: 1 }", DefaultSettings());
  RestartBudget before(settings);
  for (const int minutes : {0, 50}) {
    ASSERT_EQ(before.Charge(FailureAt(7), At(absl::Minutes(minutes))), Answer::kRestart);
  }
  const RestartRecord record = before.Record(At(absl::Minutes(55)));
  RestartBudget after(settings);
  after.LearnUsed(before.used());
  after.Restore(record, At(absl::Minutes(100)));
  EXPECT_EQ(after.Record(At(absl::Minutes(100))), record);
  RestartBudget same_step = after;
  EXPECT_EQ(same_step.Charge(FailureAt(7), At(absl::Minutes(101))), Answer::kNoProgress);
  RestartBudget too_soon = after;
  EXPECT_EQ(too_soon.Charge(FailureAt(8), At(absl::Minutes(104))), Answer::kSpent);
  EXPECT_EQ(after.Charge(FailureAt(8), At(absl::Minutes(105))), Answer::kRestart) << "the first is an hour old";
  EXPECT_EQ(after.Backoff(), absl::Seconds(2)) << "the second is 10 minutes old";
  EXPECT_EQ(RestartBudget(settings).Record(At(absl::Minutes(1))), RestartRecord());
}

}  // namespace
}  // namespace ddprun::rendezvous
