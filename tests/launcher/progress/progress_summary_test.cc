#include "launcher/progress/progress_summary.h"

#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <string>

namespace ddprun::launcher {
namespace {

using worker_contract::LinkProgress;

class ProgressSummaryTest : public ::testing::Test {
 protected:
  void Start(int32_t base_rank, int32_t slots, int32_t restarts = 0) {
    rendezvous::Assignment assignment;
    assignment.set_round(board_.round() + 1);
    assignment.set_base_rank(base_rank);
    assignment.set_restart_count(restarts);
    ASSERT_TRUE(board_.BeginRound(assignment, slots));
    summary_.OnRound();
  }
  void Report(int32_t local_rank, int64_t step, const std::string& phase = "", std::optional<double> loss = {}) {
    const ReportedProgress report{LinkProgress{.step = step, .phase = phase, .loss = loss}, now_};
    if (board_.OnProgress(local_rank, report)) summary_.OnProgress(local_rank);
  }
  void Pass(absl::Duration time) { now_ = now_ + time; }
  std::string Text() const { return summary_.Text(now_); }

  ProgressBoard board_;
  ProgressSummary summary_{&board_};
  SteadyTime now_ = SteadyTime::FromStart(absl::Seconds(100));
};

TEST_F(ProgressSummaryTest, NothingReported_Empty) {
  Report(0, 3);  // outside of a round
  EXPECT_EQ(Text(), "");
  Start(0, 2);
  for (const int rank : {2, -1}) Report(rank, 3);  // no such rank
  EXPECT_EQ(Text(), "");
}

TEST_F(ProgressSummaryTest, OneRank_StepSpeedLossPhase) {
  Start(0, 1);
  Report(0, 10, "forward");
  EXPECT_EQ(Text(), "step 10, phase forward");
  Pass(absl::Seconds(1));
  Report(0, 14, "backward", 2.3125);
  EXPECT_EQ(Text(), "step 14, 4.00 steps/s, loss 2.312, phase backward");
  Report(0, 14, "optimizer");  // the loss of the step stays
  EXPECT_EQ(Text(), "step 14, 4.00 steps/s, loss 2.312, phase optimizer");
  Report(0, 15, "", std::nan(""));
  EXPECT_EQ(Text(), "step 15, 5.00 steps/s, loss nan");
}

TEST_F(ProgressSummaryTest, Speed_IsThatOfTheLastTenSeconds_OrSecondsPerStep) {
  Start(0, 1);
  for (int step = 0; step < 100; ++step, Pass(absl::Seconds(1))) Report(0, step);
  for (int i = 0; i < 1500; ++i, Pass(absl::Milliseconds(10))) Report(0, 100 + i);
  EXPECT_EQ(Text(), "step 1599, 99.90 steps/s");
  Pass(absl::Seconds(10));  // falls while nothing is reported
  EXPECT_EQ(Text(), "step 1599, 50.45 steps/s");
  Start(0, 1);
  for (int step = 0; step < 5; ++step, Pass(absl::Seconds(30))) Report(0, step);
  EXPECT_EQ(Text(), "step 4, 45.0 s/step");  // the newest has taken 30 s already
}

TEST_F(ProgressSummaryTest, SlowestRank_IsBehindOrStandsStill) {
  Start(8, 3);
  for (int rank = 0; rank < 3; ++rank) Report(rank, 5, "forward");
  EXPECT_EQ(Text(), "step 5, phase forward");
  Report(0, 6);
  Report(2, 6);
  Pass(absl::Milliseconds(500));
  EXPECT_EQ(Text(), "step 6, 2.00 steps/s; slowest rank 9 (step 5, forward for 500ms)");
  Report(1, 6);
  EXPECT_EQ(Text(), "step 6, 2.00 steps/s");
  Report(0, 6, "backward");
  Report(1, 6, "backward");
  Pass(absl::Seconds(1.5));
  EXPECT_EQ(Text(), "step 6, 2.0 s/step, phase backward; slowest rank 10 (step 6, for 2.0s)");
}

TEST_F(ProgressSummaryTest, EndedRanks_DoNotCount) {
  Start(0, 2);
  Report(0, 5);
  Report(1, 3);
  board_.OnEnded(1);
  EXPECT_EQ(Text(), "step 5");
  board_.OnEnded(0);
  board_.OnEnded(7);
  EXPECT_EQ(Text(), "");
}

TEST_F(ProgressSummaryTest, NextRound_BeginsAnewAndTellsRestarts) {
  Start(0, 1);
  Report(0, 50, "forward", 1.0);
  Pass(absl::Seconds(1));
  Report(0, 60);
  Start(0, 1, 1);
  EXPECT_EQ(Text(), "");
  Report(0, 40);
  EXPECT_EQ(Text(), "step 40; 1 restart");
  Start(0, 1, 2);
  Report(0, 41);
  EXPECT_EQ(Text(), "step 41; 2 restarts");
}

TEST_F(ProgressSummaryTest, ForeignPhase_IsOneCleanLine) {
  Start(0, 1);
  Report(0, 1, "a\n\033[2Jb");
  EXPECT_EQ(Text().find('\n'), std::string::npos);
  EXPECT_EQ(Text().find('\033'), std::string::npos);
}

}  // namespace
}  // namespace ddprun::launcher
