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
  v1::Node Show(int node, SteadyTime now, uint64_t round = 1) const {
    v1::Node shown;
    progress_.Show(nodes_[node], round, now, &shown);
    return shown;
  }

  Node nodes_[2];
  JobProgress progress_;
};

TEST_F(JobProgressTest, SummarizesAllRanks) {
  EXPECT_FALSE(progress_.Summarize(1, At(0), true).has_value());
  progress_.Add(nodes_[1], Of("round: 1 ranks { local_rank: 0 step: 7 samples: 10 loss: 2.0 }"), At(1));
  progress_.Add(nodes_[0],
                Of("round: 1 ranks { local_rank: 0 step: 8 samples: 1 ago { nanos: 500000000 } } "
                   "ranks { local_rank: 1 step: 9 samples: 2 phase: 'forward' loss: 3.0 }"),
                At(2));
  EXPECT_EQ(progress_.Summarize(1, At(4), false),
            TextProto<v1::Training>("step: 9 steps_behind: 2 loss: 3.0 samples: 13 ago { seconds: 2 }"));
  ASSERT_EQ(Show(0, At(4)).progress_size(), 2);
  EXPECT_EQ(ToDuration(Show(0, At(4)).progress(0).ago()), absl::Seconds(2.5));
  EXPECT_EQ(Show(0, At(4)).progress(1).phase(), "forward");
  EXPECT_EQ(Show(1, At(4)).progress_size(), 1);
}

TEST_F(JobProgressTest, NewRound_ForgetsRanksAndKeepsLosses) {
  progress_.Add(nodes_[0], Of("round: 1 ranks { local_rank: 0 step: 5 loss: 2.0 } ranks { local_rank: 1 step: 5 }"),
                At(1));
  EXPECT_FALSE(progress_.Summarize(2, At(1), true).has_value());  // nothing of the new one yet
  EXPECT_EQ(Show(0, At(1), 2).progress_size(), 0);
  progress_.Add(nodes_[0], Of("round: 2 ranks { local_rank: 0 step: 6 loss: 1.5 }"), At(2));
  EXPECT_EQ(Show(0, At(2), 2).progress_size(), 1);
  EXPECT_EQ(progress_.Summarize(2, At(2), true),
            TextProto<v1::Training>("step: 6 loss: 1.5 ago {} losses { step: 5 loss: 2.0 } "
                                    "losses { step: 6 loss: 1.5 }"));
}

TEST_F(JobProgressTest, RanksThatTheNodeDoesNotHave_AreLeftOut) {
  progress_.Add(nodes_[0], Of("round: 1 ranks { local_rank: 2 step: 5 } ranks { local_rank: -1 step: 5 }"), At(1));
  EXPECT_FALSE(progress_.Summarize(1, At(1), true).has_value());
}

TEST_F(JobProgressTest, Losses_AreOfTheLowestRankBoundedAndOfStepsMadeAgainOnce) {
  progress_.Add(nodes_[1], Of("round: 1 ranks { local_rank: 0 step: 1 loss: 9.0 }"), At(1));
  const int last = 100'000;
  for (int step = 1; step <= last; ++step) {
    progress_.Add(nodes_[0], StepOf(step, 1.0 / step), At(1));
    progress_.Add(nodes_[1], StepOf(step, 9.0), At(1));
  }
  auto losses = progress_.Summarize(1, At(2), true)->losses();
  EXPECT_LE(losses.size(), int{JobProgress::kMaxLosses});
  EXPECT_GT(losses.size(), int{JobProgress::kMaxLosses / 4});
  for (int i = 0; i < losses.size(); ++i) {
    EXPECT_EQ(losses[i].loss(), 1.0 / losses[i].step());
    EXPECT_TRUE(i == 0 || losses[i - 1].step() < losses[i].step());
  }
  EXPECT_GT(losses.rbegin()->step(), last * 9 / 10);
  progress_.Add(nodes_[0], StepOf(last / 2, 7.0), At(3));
  losses = progress_.Summarize(1, At(3), true)->losses();
  EXPECT_LE(losses.rbegin()->step(), last / 2);
}

}  // namespace
}  // namespace ddprun::rendezvous
