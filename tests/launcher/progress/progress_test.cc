#include "launcher/progress/progress.h"

#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <string>

#include "tests/testing/text_proto.h"

namespace ddprun::launcher {
namespace {

SteadyTime At(double seconds) { return SteadyTime::FromStart(absl::Seconds(seconds)); }

rendezvous::Assignment Round(uint64_t round, int32_t nodes = 1) {
  rendezvous::Assignment assignment;
  assignment.set_round(round);
  assignment.set_base_rank(4);
  assignment.set_restart_count(2);
  assignment.set_group_world_size(nodes);
  return assignment;
}

TEST(ProgressBoard, SameRoundAgain_ChangesNothing) {
  ProgressBoard board;
  EXPECT_FALSE(board.OnProgress(0, {{.step = 1}, At(1)}));
  EXPECT_TRUE(board.BeginRound(Round(1, 2), 2));
  EXPECT_TRUE(board.OnProgress(1, {{.step = 1}, At(1)}));
  EXPECT_FALSE(board.BeginRound(Round(1, 2), 2));
  EXPECT_TRUE(board.ranks()[1].last.has_value());
  EXPECT_TRUE(board.other_nodes());
  EXPECT_EQ(board.base_rank(), 4);
  EXPECT_EQ(board.restart_count(), 2);
  EXPECT_TRUE(board.BeginRound(Round(2), 2));
  EXPECT_FALSE(board.ranks()[1].last.has_value());
  EXPECT_FALSE(board.other_nodes());
}

TEST(ProgressBoard, LossAndTimeOfTheLastMove_AreKept) {
  ProgressBoard board;
  board.BeginRound(Round(1), 1);
  board.OnProgress(0, {{.step = 1, .phase = "forward", .loss = 0.5}, At(1)});
  board.OnProgress(0, {{.step = 1, .phase = "backward"}, At(2)});
  board.OnProgress(0, {{.step = 1, .phase = "backward"}, At(3)});
  const ProgressBoard::Rank& rank = board.ranks()[0];
  EXPECT_EQ(rank.last->at, At(3));
  EXPECT_EQ(rank.moved, At(2));
  EXPECT_EQ(rank.loss, 0.5);
  EXPECT_FALSE(rank.last->progress.loss.has_value());
}

TEST(ProgressBoard, UnknownRanks_AreIgnored) {
  ProgressBoard board;
  board.BeginRound(Round(1), 2);
  EXPECT_FALSE(board.OnProgress(2, {{.step = 1}, At(1)}));
  EXPECT_FALSE(board.OnProgress(-1, {{.step = 1}, At(1)}));
  EXPECT_FALSE(board.OnEnded(2));
  EXPECT_TRUE(board.OnEnded(1));
  EXPECT_TRUE(board.ranks()[1].ended);
}

using worker_contract::LinkProgress;

class ProgressSummaryTest : public ::testing::Test {
 protected:
  void Start(int32_t base_rank, int32_t slots, int32_t restarts = 0) {
    rendezvous::Assignment assignment;
    assignment.set_round(board_.round() + 1);
    assignment.set_base_rank(base_rank);
    assignment.set_restart_count(restarts);
    ASSERT_TRUE(board_.BeginRound(assignment, slots));
  }
  void Report(int32_t local_rank, int64_t step, const std::string& phase = "", std::optional<double> loss = {}) {
    const ReportedProgress report{LinkProgress{.step = step, .phase = phase, .loss = loss}, now_};
    board_.OnProgress(local_rank, report);
  }
  void Pass(absl::Duration time) { now_ = now_ + time; }
  std::string Text() const { return ProgressSummary(board_, now_); }

  ProgressBoard board_;
  SteadyTime now_ = SteadyTime::FromStart(absl::Seconds(100));
};

TEST_F(ProgressSummaryTest, NothingReported_IsEmpty) {
  Report(0, 3);  // outside of a round
  EXPECT_EQ(Text(), "");
  Start(0, 2);
  for (const int rank : {2, -1}) Report(rank, 3);  // no such rank
  EXPECT_EQ(Text(), "");
}

TEST_F(ProgressSummaryTest, OneRank_HasStepSpeedLossPhase) {
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

TEST_F(ProgressSummaryTest, NextRound_StartsOverAndShowsRestarts) {
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

class ProgressReportsTest : public ::testing::Test {
 protected:
  ProgressReportsTest() { BeginRound(3); }
  void BeginRound(uint64_t round) {
    rendezvous::Assignment assignment;
    assignment.set_round(round);
    board_.BeginRound(assignment, rendezvous::kMaxRanksInProgress + 3);
  }
  void Report(int32_t local_rank, const worker_contract::LinkProgress& progress, SteadyTime at) {
    ASSERT_TRUE(board_.OnProgress(local_rank, {progress, at}));
  }

  ProgressBoard board_;
  ProgressReports reports_{&board_};
};

TEST_F(ProgressReportsTest, FirstReport_IsSentAtOnce) {
  EXPECT_EQ(reports_.NextDeadline(), SteadyTime::InfiniteFuture());
  EXPECT_FALSE(reports_.Take(At(1)).has_value());
  Report(1, {.step = 7, .samples = 70, .phase = "forward", .loss = 0.5}, At(1));
  EXPECT_LE(reports_.NextDeadline(), At(1));
  const auto progress = reports_.Take(At(1.25));
  ASSERT_TRUE(progress.has_value());
  EXPECT_EQ(progress->round(), 3);
  const auto expected = TextProto<rendezvous::RankProgress>(
      "local_rank: 1 step: 7 samples: 70 phase: 'forward' loss: 0.5 ago { nanos: 250000000 }");
  ASSERT_EQ(progress->ranks_size(), 1);
  EXPECT_EQ(progress->ranks(0), expected);
}

TEST_F(ProgressReportsTest, LaterReports_NewestOfEachRankOnceASecond) {
  Report(0, {.step = 1}, At(1));
  EXPECT_TRUE(reports_.Take(At(1)).has_value());
  EXPECT_EQ(reports_.NextDeadline(), SteadyTime::InfiniteFuture());
  for (int step = 2; step < 100; ++step) Report(0, {.step = step}, At(1.5));
  Report(2, {.step = 5}, At(1.5));
  EXPECT_EQ(reports_.NextDeadline(), At(2));
  EXPECT_FALSE(reports_.Take(At(1.9)).has_value());
  const auto progress = reports_.Take(At(2));
  ASSERT_TRUE(progress.has_value());
  ASSERT_EQ(progress->ranks().size(), 2);
  EXPECT_EQ(progress->ranks(0).step(), 99);
  EXPECT_EQ(progress->ranks(1).local_rank(), 2);
}

TEST_F(ProgressReportsTest, Loss_IsKeptUntilItIsSent) {
  Report(0, {.step = 1, .loss = 2.5}, At(1));
  Report(0, {.step = 2, .phase = "forward"}, At(1));
  EXPECT_EQ(reports_.Take(At(1))->ranks(0).loss(), 2.5);
  Report(0, {.step = 3}, At(2));
  EXPECT_FALSE(reports_.Take(At(2))->ranks(0).has_loss());
}

TEST_F(ProgressReportsTest, NewRound_ForgetsTheOldOne) {
  Report(0, {.step = 1}, At(1));
  BeginRound(3);
  EXPECT_NE(reports_.NextDeadline(), SteadyTime::InfiniteFuture());
  BeginRound(4);
  EXPECT_EQ(reports_.NextDeadline(), SteadyTime::InfiniteFuture());
}

TEST_F(ProgressReportsTest, ManyRanks_AreSentInParts) {
  for (int rank = 0; rank < rendezvous::kMaxRanksInProgress + 3; ++rank) Report(rank, {.step = 1}, At(1));
  EXPECT_EQ(reports_.Take(At(1))->ranks().size(), rendezvous::kMaxRanksInProgress);
  EXPECT_EQ(reports_.NextDeadline(), At(2));
  EXPECT_EQ(reports_.Take(At(2))->ranks().size(), 3);
}

}  // namespace
}  // namespace ddprun::launcher
