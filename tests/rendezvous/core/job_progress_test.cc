// Progress of ranks, as the views of a job show it.
#include "rendezvous/core/job_progress.h"

#include <gtest/gtest.h>

#include "tests/testing/text_proto.h"

namespace ddprun::rendezvous {
namespace {

SteadyTime At(double seconds) { return SteadyTime::FromStart(absl::Seconds(seconds)); }

Progress Of(absl::string_view text) { return TextProto<Progress>(text); }

Progress StepOf(int64_t step, double loss) {
  Progress progress = Of("round: 1 ranks { local_rank: 0 }");
  progress.mutable_ranks(0)->set_step(step);
  progress.mutable_ranks(0)->set_loss(loss);
  return progress;
}

class JobProgressTest : public ::testing::Test {
 protected:
  JobProgressTest() {
    for (int i = 0; i < 2; ++i) {
      nodes_[i].join.set_node_id(i == 0 ? "a" : "b");
      nodes_[i].join.set_slots(2);
      nodes_[i].base_rank = 2 * i;
      nodes_[i].group_rank = i;
    }
  }
  JobView Show(SteadyTime now, uint64_t round = 1) const {
    JobView view;
    view.round = round;
    for (const Node& node : nodes_) {
      v1::Node& shown = view.nodes.emplace_back();
      shown.set_node_id(node.join.node_id());
      shown.set_group_rank(node.group_rank);
      shown.set_base_rank(node.base_rank);
    }
    progress_.Show(now, &view);
    return view;
  }

  Node nodes_[2];
  JobProgress progress_;
};

TEST_F(JobProgressTest, SummarizesAllRanks) {
  EXPECT_FALSE(Show(At(0)).training.has_value());
  progress_.Add(nodes_[1], Of("round: 1 ranks { local_rank: 0 step: 7 samples: 10 loss: 2.0 }"), At(1));
  progress_.Add(nodes_[0],
                Of("round: 1 ranks { local_rank: 0 step: 8 samples: 1 ago { nanos: 500000000 } } "
                   "ranks { local_rank: 1 step: 9 samples: 2 phase: 'forward' loss: 3.0 }"),
                At(2));
  const JobView view = Show(At(4));
  ASSERT_TRUE(view.training.has_value());
  EXPECT_EQ(view.training->step, 9);
  EXPECT_EQ(view.training->behind, 2);
  EXPECT_EQ(view.training->loss, 3.0);
  EXPECT_EQ(view.training->samples, 13);
  EXPECT_EQ(view.training->ago, absl::Seconds(2));
  ASSERT_EQ(view.nodes[0].progress_size(), 2);
  EXPECT_EQ(ToDuration(view.nodes[0].progress(0).ago()), absl::Seconds(2.5));
  EXPECT_EQ(view.nodes[0].progress(1).phase(), "forward");
  EXPECT_EQ(view.nodes[1].progress_size(), 1);
}

TEST_F(JobProgressTest, NewRound_ForgetsRanksAndKeepsLosses) {
  progress_.Add(nodes_[0], Of("round: 1 ranks { local_rank: 0 step: 5 loss: 2.0 } ranks { local_rank: 1 step: 5 }"),
                At(1));
  EXPECT_FALSE(Show(At(1), 2).training.has_value());  // nothing of the new one yet
  progress_.Add(nodes_[0], Of("round: 2 ranks { local_rank: 0 step: 6 loss: 1.5 }"), At(2));
  const JobView view = Show(At(2), 2);
  EXPECT_EQ(view.nodes[0].progress_size(), 1);
  EXPECT_EQ(view.training->losses, (std::vector<std::pair<int64_t, double>>{{5, 2.0}, {6, 1.5}}));
}

TEST_F(JobProgressTest, RanksThatTheNodeDoesNotHave_AreLeftOut) {
  progress_.Add(nodes_[0], Of("round: 1 ranks { local_rank: 2 step: 5 } ranks { local_rank: -1 step: 5 }"), At(1));
  EXPECT_FALSE(Show(At(1)).training.has_value());
}

TEST_F(JobProgressTest, Losses_AreOfTheLowestRankBoundedAndOfStepsMadeAgainOnce) {
  progress_.Add(nodes_[1], Of("round: 1 ranks { local_rank: 0 step: 1 loss: 9.0 }"), At(1));
  const int last = 100'000;
  for (int step = 1; step <= last; ++step) {
    progress_.Add(nodes_[0], StepOf(step, 1.0 / step), At(1));
    progress_.Add(nodes_[1], StepOf(step, 9.0), At(1));
  }
  auto losses = Show(At(2)).training->losses;
  EXPECT_LE(losses.size(), JobProgress::kMaxLosses);
  EXPECT_GT(losses.size(), JobProgress::kMaxLosses / 4);
  for (size_t i = 0; i < losses.size(); ++i) {
    EXPECT_EQ(losses[i].second, 1.0 / losses[i].first);
    EXPECT_TRUE(i == 0 || losses[i - 1].first < losses[i].first);
  }
  EXPECT_GT(losses.back().first, last * 9 / 10);
  progress_.Add(nodes_[0], StepOf(last / 2, 7.0), At(3));
  losses = Show(At(3)).training->losses;
  EXPECT_LE(losses.back().first, last / 2);
}

}  // namespace
}  // namespace ddprun::rendezvous
