#include "launcher/progress/progress_watch.h"

#include <gtest/gtest.h>

#include <optional>

namespace ddprun::launcher {
namespace {

class ProgressWatchTest : public ::testing::Test {
 protected:
  explicit ProgressWatchTest(ProgressWatch::Settings settings = {}) : watch_(settings) {}

  void Report(int32_t rank, int64_t step, const std::string& phase) {
    RunDeadlines();
    watch_.OnProgress(rank, {step, std::nullopt, phase, std::nullopt}, now_, &effects_);
  }
  void ReportAll(int64_t step, const std::string& phase) {
    for (int32_t rank = 0; rank < slots_; ++rank) Report(rank, step, phase);
  }
  void Wait(absl::Duration duration) {
    const SteadyTime until = now_ + duration;
    while (watch_.NextDeadline() <= until) {
      now_ = std::max(now_, watch_.NextDeadline());
      watch_.OnDeadline(now_, &effects_);
    }
    now_ = until;
  }
  void RunDeadlines() { Wait(absl::ZeroDuration()); }

  void Start(int32_t slots, bool other_nodes = false) {
    slots_ = slots;
    watch_.StartRound(slots, other_nodes);
  }
  // Steps of 0.4 s without waits.
  void Train(int64_t first, int64_t last) {
    for (int64_t step = first; step <= last; ++step) {
      ReportAll(step, "forward");
      Wait(absl::Milliseconds(100));
      ReportAll(step, "backward");
      Wait(absl::Milliseconds(200));
      ReportAll(step, "optimizer");
      Wait(absl::Milliseconds(100));
    }
  }
  void StartTrained(int32_t slots, bool other_nodes = false) {
    Start(slots, other_nodes);
    Train(0, 19);
  }
  // In this step rank `hung` stays in forward while the others continue to backward.
  void HangInForward(int32_t hung, int64_t step) {
    ReportAll(step, "forward");
    Wait(absl::Milliseconds(100));
    for (int32_t rank = 0; rank < slots_; ++rank) {
      if (rank != hung) Report(rank, step, "backward");
    }
  }
  void HangInForward(int32_t hung) {
    Train(0, 19);
    HangInForward(hung, 20);
  }

  template <typename Effect>
  std::vector<Effect> Take() {
    std::vector<Effect> found;
    for (const ProgressEffect& effect : std::exchange(effects_, {})) {
      if (const auto* one = std::get_if<Effect>(&effect)) found.push_back(*one);
    }
    return found;
  }
  template <typename Effect>
  Effect TakeOne() {
    const std::vector<Effect> found = Take<Effect>();
    EXPECT_EQ(found.size(), 1u);
    return found.empty() ? Effect() : found[0];
  }
  static LocalRanks Ranks(const std::vector<WorkerStanding>& standings) {
    LocalRanks ranks;
    for (const WorkerStanding& standing : standings) ranks.push_back(standing.local_rank);
    return ranks;
  }

  ProgressWatch watch_;
  SteadyTime now_ = SteadyTime::FromStart(absl::Seconds(1000));
  int32_t slots_ = 0;
  ProgressEffects effects_;
};

TEST_F(ProgressWatchTest, HungRank_IsNamedAfterItsLimitAndTheOthersWait) {
  Start(4);
  HangInForward(2);
  Wait(absl::Milliseconds(999));
  EXPECT_TRUE(effects_.empty());
  Wait(absl::Milliseconds(2));
  const auto hang = TakeOne<effect::Hang>();
  EXPECT_FALSE(hang.again || hang.elsewhere);
  ASSERT_EQ(Ranks(hang.behind), LocalRanks{2});
  const WorkerStanding& hung = hang.behind.at(0);
  EXPECT_EQ(hung.step, 20);
  EXPECT_EQ(hung.phase, "forward");
  EXPECT_EQ(hung.stood, absl::Milliseconds(1100));
  EXPECT_EQ(hung.limit, absl::Seconds(1));
  EXPECT_GE(hung.usual, absl::Milliseconds(100));
  EXPECT_LE(hung.usual, absl::Milliseconds(113));
  EXPECT_EQ(Ranks(hang.waiting), (LocalRanks{0, 1, 3}));
  EXPECT_EQ(hang.waiting.at(0).phase, "backward");
  EXPECT_TRUE(hang.silent.empty());
}

TEST_F(ProgressWatchTest, LongPhase_LimitIsTheFactorTimesThePercentile) {
  Start(1);
  for (int64_t step = 0; step < 200; ++step) {
    Report(0, step, "");
    Wait(absl::Seconds(10));
  }
  Report(0, 200, "");
  Wait(absl::Seconds(29));
  EXPECT_TRUE(effects_.empty());
  Wait(absl::Seconds(6));
  EXPECT_EQ(Take<effect::Hang>().size(), 1u);
}

TEST_F(ProgressWatchTest, SmallerStep_IsBehindWhateverThePhases) {
  StartTrained(2);
  ReportAll(20, "forward");
  ReportAll(20, "backward");
  ReportAll(20, "optimizer");
  Report(1, 21, "forward");
  Wait(absl::Seconds(2));
  const auto hang = TakeOne<effect::Hang>();
  EXPECT_EQ(Ranks(hang.behind), LocalRanks{0});
  EXPECT_EQ(hang.behind.at(0).step, 20);
}

// ddprun.elastic reports a phase of waiting only where a rank waits for long.
TEST_F(ProgressWatchTest, SameStep_RankThatWaitsIsNotBehind) {
  StartTrained(3);
  ReportAll(20, "forward");
  Report(0, 20, "sync");
  Report(2, 20, "sync");
  Wait(absl::Seconds(2));
  const auto hang = TakeOne<effect::Hang>();
  EXPECT_EQ(Ranks(hang.behind), LocalRanks{1});
  EXPECT_EQ(Ranks(hang.waiting), (LocalRanks{0, 2}));
}

TEST_F(ProgressWatchTest, StepsThatStartOver_AreNotBehind) {
  StartTrained(2);
  Train(0, 0);
  ReportAll(1, "forward");
  Report(0, 1, "backward");
  Report(0, 0, "forward");  // begins the third epoch
  Wait(absl::Seconds(2));
  EXPECT_EQ(Ranks(TakeOne<effect::Hang>().behind), LocalRanks{1});
}

TEST_F(ProgressWatchTest, PhaseOfOneRankOnly_DoesNotCount) {
  Start(3);
  for (int64_t step = 0; step < 20; ++step) {
    ReportAll(step, "forward");
    Report(0, step, "log");
    Wait(absl::Milliseconds(100));
    ReportAll(step, "backward");
    Wait(absl::Milliseconds(100));
  }
  ReportAll(20, "forward");
  Report(0, 20, "log");
  Report(0, 20, "backward");
  Report(1, 20, "backward");
  Wait(absl::Seconds(2));
  EXPECT_EQ(Ranks(TakeOne<effect::Hang>().behind), LocalRanks{2});
}

TEST_F(ProgressWatchTest, AllInTheSamePhase_AllAreBehindOnceTheLastHasExceededItsLimit) {
  StartTrained(3);
  ReportAll(20, "forward");
  ReportAll(20, "backward");
  Wait(absl::Milliseconds(999));
  EXPECT_TRUE(effects_.empty());
  Wait(absl::Milliseconds(2));
  const auto hang = TakeOne<effect::Hang>();
  EXPECT_EQ(Ranks(hang.behind), (LocalRanks{0, 1, 2}));
  EXPECT_TRUE(hang.waiting.empty());
}

TEST_F(ProgressWatchTest, AllWaitAndThereAreOtherNodes_TheCauseMayBeElsewhere) {
  StartTrained(2, /*other_nodes=*/true);
  ReportAll(20, "backward");
  Wait(ProgressWatch::kElsewhere - absl::Milliseconds(1));
  EXPECT_TRUE(effects_.empty());
  Wait(absl::Milliseconds(2));
  EXPECT_TRUE(TakeOne<effect::Hang>().elsewhere);
  // The other node continues, and rank 1 is notified a little later.
  Report(0, 20, "optimizer");
  Wait(absl::Milliseconds(900));
  Report(1, 20, "optimizer");
  EXPECT_TRUE(Take<effect::Hang>().empty());
}

TEST_F(ProgressWatchTest, OtherNodes_OneHangsOrAllCompute_TheLimitIsAsUsual) {
  Start(2, /*other_nodes=*/true);
  HangInForward(1);
  Wait(absl::Milliseconds(1001));
  EXPECT_FALSE(TakeOne<effect::Hang>().elsewhere);
  StartTrained(1, /*other_nodes=*/true);
  Report(0, 20, "forward");
  Wait(absl::Milliseconds(1001));
  EXPECT_EQ(Take<effect::Hang>().size(), 1u);
}

TEST_F(ProgressWatchTest, RankInANewPhase_TheOthersMayWaitForIt) {
  StartTrained(2);
  ReportAll(20, "forward");
  Report(0, 20, "checkpoint");
  Report(1, 20, "backward");
  Wait(absl::Minutes(30));
  EXPECT_TRUE(effects_.empty());
  // Rank 1 spent that time waiting: its limit is unchanged.
  Report(0, 20, "backward");
  Wait(absl::Milliseconds(200));
  Train(21, 21);
  ReportAll(22, "forward");
  Report(0, 22, "backward");
  Wait(absl::Seconds(1));
  EXPECT_EQ(Take<effect::Hang>().size(), 1u);
}

TEST_F(ProgressWatchTest, WaitEnds_LastRankToLeaveIsNotHung) {
  StartTrained(3);
  ReportAll(20, "forward");
  Report(1, 20, "backward");
  Report(2, 20, "backward");
  Report(0, 20, "checkpoint");
  Wait(absl::Minutes(1));
  Report(0, 20, "backward");
  Wait(absl::Milliseconds(100));
  Report(0, 20, "optimizer");
  Wait(absl::Milliseconds(50));
  Report(1, 20, "optimizer");
  Wait(absl::Milliseconds(50));
  EXPECT_TRUE(effects_.empty());
}

TEST_F(ProgressWatchTest, FirstSteps_HaveNoLimitAndTeachNothing) {
  Start(1);
  for (int64_t step = 0; step < ProgressWatch::kWarmUpSteps; ++step) {
    Report(0, step, "");
    Wait(absl::Minutes(5));
  }
  for (int64_t step = 3; step < 20; ++step) {
    Report(0, step, "");
    Wait(absl::Milliseconds(100));
  }
  EXPECT_TRUE(effects_.empty());
  Wait(absl::Seconds(1));
  EXPECT_EQ(Take<effect::Hang>().size(), 1u);
}

TEST_F(ProgressWatchTest, NewRound_LimitsAreLearnedAgain) {
  StartTrained(1);
  Start(1);
  EXPECT_EQ(watch_.NextDeadline(), SteadyTime::InfiniteFuture());
  Report(0, 19, "forward");
  Wait(absl::Hours(1));
  EXPECT_TRUE(effects_.empty());
}

TEST_F(ProgressWatchTest, EndedRound_NothingIsReported) {
  Start(3);
  HangInForward(1);
  Report(2, 20, "exiting");
  watch_.EndRound();
  Wait(absl::Hours(1));
  Report(0, 21, "forward");
  EXPECT_TRUE(effects_.empty());
  EXPECT_EQ(watch_.NextDeadline(), SteadyTime::InfiniteFuture());
}

TEST_F(ProgressWatchTest, FinishedRank_NeitherHangsNorIsWaitedFor) {
  StartTrained(2);
  Report(0, 20, "finished");
  Report(1, 20, "forward");
  Wait(absl::Seconds(30));
  const auto hang = TakeOne<effect::Hang>();
  EXPECT_EQ(Ranks(hang.behind), LocalRanks{1});
  EXPECT_EQ(hang.finished, LocalRanks{0});
  Report(1, 20, "finished");
  Take<effect::HangEnded>();
  Wait(absl::Hours(1));
  EXPECT_EQ(Take<effect::NotExited>().size(), 2u);
  // Both continue training.
  Train(21, 40);
  EXPECT_TRUE(effects_.empty());
  HangInForward(0, 41);
  Wait(absl::Minutes(2));  // twice the longest, which was the hang before
  const auto later = Take<effect::Hang>();
  ASSERT_GE(later.size(), 1u);
  EXPECT_EQ(Ranks(later[0].behind), LocalRanks{0});
}

TEST_F(ProgressWatchTest, FinishedRank_IsNamedOnceAndNeverKilled) {
  StartTrained(2);
  Report(1, 20, "finished");
  watch_.OnEnded(0, now_);
  Wait(absl::Minutes(5) - absl::Nanoseconds(1));
  EXPECT_TRUE(effects_.empty());
  Wait(absl::Nanoseconds(1));
  const auto named = TakeOne<effect::NotExited>();
  EXPECT_EQ(named.local_rank, 1);
  EXPECT_EQ(named.stood, absl::Minutes(5));
  EXPECT_EQ(named.killed_after, absl::InfiniteDuration());
  EXPECT_FALSE(named.kill);
  EXPECT_EQ(watch_.NextDeadline(), SteadyTime::InfiniteFuture());
}

TEST_F(ProgressWatchTest, ExitingRank_IsNamedThenKilled) {
  StartTrained(2);
  Report(1, 20, "exiting");
  watch_.OnEnded(0, now_);
  Wait(absl::Minutes(9));
  const auto named = TakeOne<effect::NotExited>();
  EXPECT_EQ(named.stood, absl::Minutes(5));
  EXPECT_EQ(named.killed_after, absl::Minutes(10));
  EXPECT_FALSE(named.kill);
  // It is busy when it is to be killed: its time starts over, without another report.
  for (const int minutes : {1, 10}) {
    Wait(absl::Minutes(minutes));
    const auto killed = TakeOne<effect::NotExited>();
    EXPECT_EQ(killed.stood, absl::Minutes(10));
    EXPECT_TRUE(killed.kill);
  }
  watch_.OnEnded(1, now_);
  EXPECT_EQ(watch_.NextDeadline(), SteadyTime::InfiniteFuture());
}

TEST_F(ProgressWatchTest, ExitingRank_MayWaitForARankThatSaves) {
  Start(3);  // the third reports nothing
  slots_ = 2;
  Train(0, 19);
  Report(0, 20, "checkpoint");
  Report(1, 20, "exiting");
  Wait(absl::Minutes(20));
  watch_.OnEnded(2, now_);
  Wait(absl::Minutes(10));
  const auto named = TakeOne<effect::NotExited>();
  EXPECT_EQ(named.local_rank, 1);
  EXPECT_FALSE(named.kill);
  Report(0, 20, "exiting");
  Wait(absl::Minutes(10) - absl::Nanoseconds(1));
  for (const auto& not_exited : Take<effect::NotExited>()) EXPECT_FALSE(not_exited.kill);
  Wait(absl::Nanoseconds(1));
  const auto killed = Take<effect::NotExited>();
  ASSERT_EQ(killed.size(), 2u);
  EXPECT_TRUE(killed[1].kill);
  EXPECT_EQ(killed[1].stood, absl::Minutes(40));
}

// It is saving a checkpoint and reports that.
TEST_F(ProgressWatchTest, ExitingRankThatReportsOrStalledLauncher_StartsOver) {
  StartTrained(1);
  Report(0, 20, "exiting");
  for (int minute = 0; minute < 60; minute += 4) {
    Wait(absl::Minutes(4));
    Report(0, 20, "exiting");
  }
  Report(0, 20, "checkpoint");
  Wait(absl::Hours(1));
  EXPECT_TRUE(effects_.empty());
  Report(0, 20, "exiting");
  now_ = now_ + absl::Hours(1);
  watch_.OnDeadline(now_, &effects_);
  Wait(absl::Minutes(4));
  EXPECT_TRUE(effects_.empty());
  Wait(absl::Minutes(1));
  EXPECT_FALSE(TakeOne<effect::NotExited>().kill);
  Wait(absl::Minutes(5));
  EXPECT_TRUE(TakeOne<effect::NotExited>().kill);
}

TEST_F(ProgressWatchTest, AllEvaluateAndThereAreOtherNodes_TheCauseMayBeElsewhere) {
  Start(2, /*other_nodes=*/true);
  for (int64_t step = 0; step < 20; ++step) {
    Train(step, step);
    ReportAll(step + 1, "evaluation");
    Wait(absl::Seconds(1));
  }
  ReportAll(20, "evaluation");
  Wait(absl::Minutes(2));
  const auto hangs = Take<effect::Hang>();
  ASSERT_GE(hangs.size(), 1u);
  EXPECT_TRUE(hangs[0].elsewhere);
}

TEST_F(ProgressWatchTest, SilentAndEndedRanks_AreListed) {
  Start(4);
  for (int64_t step = 0; step < 20; ++step) {
    Report(0, step, "");
    Report(1, step, "");
    Wait(absl::Milliseconds(100));
  }
  watch_.OnEnded(1, now_);
  Wait(absl::Seconds(2));
  const auto hang = TakeOne<effect::Hang>();
  EXPECT_EQ(Ranks(hang.behind), LocalRanks{0});
  EXPECT_EQ(hang.silent, (LocalRanks{2, 3}));
  EXPECT_EQ(hang.ended, LocalRanks{1});
}

TEST_F(ProgressWatchTest, Hang_IsRepeatedLessAndLessUntilItEnds) {
  Start(2);
  HangInForward(1);
  Wait(absl::Seconds(1));
  EXPECT_EQ(Take<effect::Hang>().size(), 1u);
  Wait(absl::Minutes(1));
  EXPECT_TRUE(TakeOne<effect::Hang>().again);
  Wait(absl::Hours(3));
  EXPECT_LT(Take<effect::Hang>().size(), 11u);
  Report(1, 20, "backward");
  const auto went_on = TakeOne<effect::HangEnded>();
  EXPECT_EQ(went_on.stood.local_rank, 1);
  EXPECT_EQ(went_on.stood.phase, "forward");
  EXPECT_GT(went_on.stood.stood, absl::Hours(3));
  // The long phase has raised the limit of forward.
  Wait(absl::Milliseconds(200));
  Train(21, 25);
  HangInForward(1);
  Wait(absl::Hours(3));
  EXPECT_TRUE(Take<effect::Hang>().empty());
}

TEST_F(ProgressWatchTest, LauncherThatDidNotRun_RaisesNoAlarmAndLearnsNothing) {
  StartTrained(2);
  ReportAll(20, "forward");
  now_ = now_ + absl::Minutes(1);
  watch_.OnDeadline(now_, &effects_);
  ReportAll(20, "backward");
  EXPECT_TRUE(effects_.empty());
  ReportAll(20, "optimizer");
  now_ = now_ + absl::Minutes(1);
  watch_.OnProgress(0, {21, std::nullopt, "forward", std::nullopt}, now_, &effects_);
  EXPECT_TRUE(effects_.empty());
  Report(1, 21, "forward");
  Report(0, 21, "backward");
  Wait(absl::Milliseconds(1001));
  EXPECT_EQ(TakeOne<effect::Hang>().behind.at(0).limit, absl::Seconds(1));
}

TEST_F(ProgressWatchTest, EndlesslyManyPhasesOrUnknownRanks_RaiseNoAlarm) {
  Start(1);
  for (const int32_t rank : {1, -1}) Report(rank, 0, "");
  watch_.OnEnded(5, now_);
  EXPECT_EQ(watch_.NextDeadline(), SteadyTime::InfiniteFuture());
  for (int64_t step = 0; step < 1000; ++step) {
    Report(0, step, "phase " + std::to_string(step));
    Wait(absl::Milliseconds(10));
  }
  Wait(absl::Hours(1));
  EXPECT_TRUE(effects_.empty());
}

TEST_F(ProgressWatchTest, Straggler_IsReportedAtMostOnceAMinute) {
  Start(2);
  for (int64_t step = 0; step < 1000; ++step) {
    ReportAll(step, "forward");
    Wait(absl::Milliseconds(100));
    Report(0, step, "backward");
    Wait(absl::Milliseconds(100));
    Report(1, step, "backward");
    Wait(absl::Milliseconds(100));
  }
  const auto reports = Take<effect::Stragglers>();
  ASSERT_EQ(reports.size(), 5u);  // in 300 s
  ASSERT_EQ(reports[0].ranks.size(), 1u);
  EXPECT_EQ(reports[0].ranks[0].local_rank, 1);
  EXPECT_NEAR(reports[0].ranks[0].ratio(), 2, 1e-9);
}

class FixedLimitTest : public ProgressWatchTest {
 protected:
  FixedLimitTest() : ProgressWatchTest({.fixed_limit = absl::Seconds(30)}) {}
};

TEST_F(FixedLimitTest, FirstPhaseAndExitingRank_HaveTheLimitToo) {
  Start(2);
  ReportAll(0, "forward");
  Report(0, 0, "backward");
  Wait(absl::Seconds(29));
  EXPECT_TRUE(effects_.empty());
  Wait(absl::Seconds(2));
  const auto hang = TakeOne<effect::Hang>();
  EXPECT_EQ(Ranks(hang.behind), LocalRanks{1});
  EXPECT_EQ(hang.behind.at(0).limit, absl::Seconds(30));
  Start(1);
  Report(0, 0, "exiting");
  Wait(absl::Seconds(29));
  EXPECT_TRUE(effects_.empty());
  Wait(absl::Seconds(31));
  const auto found = Take<effect::NotExited>();
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].stood, absl::Seconds(30));
  EXPECT_EQ(found[1].stood, absl::Minutes(1));
  EXPECT_TRUE(found[1].kill);
}

TEST_F(FixedLimitTest, LearnedDurations_DoNotMatter) {
  Start(1);
  Train(0, 50);
  Wait(absl::Seconds(29));
  EXPECT_TRUE(effects_.empty());
}

}  // namespace
}  // namespace ddprun::launcher
