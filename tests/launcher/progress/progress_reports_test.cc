#include "launcher/progress/progress_reports.h"

#include <gtest/gtest.h>

#include "tests/testing/text_proto.h"

namespace ddprun::launcher {
namespace {

SteadyTime At(double seconds) { return SteadyTime::FromStart(absl::Seconds(seconds)); }

class ProgressReportsTest : public ::testing::Test {
 protected:
  ProgressReportsTest() { BeginRound(3); }
  void BeginRound(uint64_t round) {
    rendezvous::Assignment assignment;
    assignment.set_round(round);
    if (board_.BeginRound(assignment, rendezvous::kMaxRanksInProgress + 3)) reports_.OnRound();
  }
  void Report(int32_t local_rank, const worker_contract::LinkProgress& progress, SteadyTime at) {
    ASSERT_TRUE(board_.OnProgress(local_rank, {progress, at}));
    reports_.OnProgress(local_rank);
  }

  ProgressBoard board_;
  ProgressReports reports_{&board_};
};

TEST_F(ProgressReportsTest, FirstReport_IsToldAtOnce) {
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

TEST_F(ProgressReportsTest, Later_TheNewestOfEachRankOnceASecond) {
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

TEST_F(ProgressReportsTest, Loss_IsKeptUntilItIsTold) {
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

TEST_F(ProgressReportsTest, ManyRanks_ComeInParts) {
  for (int rank = 0; rank < rendezvous::kMaxRanksInProgress + 3; ++rank) Report(rank, {.step = 1}, At(1));
  EXPECT_EQ(reports_.Take(At(1))->ranks().size(), rendezvous::kMaxRanksInProgress);
  EXPECT_EQ(reports_.NextDeadline(), At(2));
  EXPECT_EQ(reports_.Take(At(2))->ranks().size(), 3);
}

}  // namespace
}  // namespace ddprun::launcher
