#include "launcher/progress/progress_board.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace ddprun::launcher
