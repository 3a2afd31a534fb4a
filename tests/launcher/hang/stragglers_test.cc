#include "launcher/hang/stragglers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/launcher/hang/job_builder.h"

namespace ddprun::launcher {
namespace {

using hang::v1::Collective;
using hang::v1::Rank;
using Ranks = std::vector<int32_t>;

constexpr int64_t kMs = 1000;  // microseconds

// Ranks whose steps are simulated: each enters the buckets of its backward one after the other, waits for all of them,
// and then averages the loss.
class Training {
 public:
  explicit Training(int32_t ranks) : times_(ranks, 1'700'000'000'000'000) {
    for (int32_t rank = 0; rank < ranks; ++rank) builders_.emplace_back(rank);
  }

  // Time that a rank computes in addition before each backward.
  Training& Slow(int32_t rank, int64_t ms) {
    slow_[rank] = ms * kMs;
    return *this;
  }
  Training& Jitter(int64_t ms) {
    jitter_ = ms * kMs;
    return *this;
  }

  void Compute(int32_t rank, int64_t us) {
    times_[rank] += us + (jitter_ > 0 ? static_cast<int64_t>(random_() % jitter_) : 0);
  }
  void Enter(int32_t rank, const std::string& group = "default_pg") {
    builders_[rank].Enter("all_reduce", "Float[10]", false, group);
    builders_[rank].Group(group).mutable_collectives()->rbegin()->set_entered_us(times_[rank]);
  }
  // These ranks leave an operation when the last one has entered it.
  void Wait(const Ranks& ranks) {
    int64_t last = 0;
    for (const int32_t rank : ranks) last = std::max(last, times_[rank]);
    for (const int32_t rank : ranks) times_[rank] = last + 500;
  }
  Ranks all() const {
    Ranks ranks;
    for (size_t i = 0; i < times_.size(); ++i) ranks.push_back(static_cast<int32_t>(i));
    return ranks;
  }
  void Steps(int steps, int buckets = 3, int64_t forward_ms = 100) {
    for (int step = 0; step < steps; ++step) {
      for (const int32_t rank : all()) {
        Compute(rank, forward_ms * kMs + slow_[rank]);
        for (int bucket = 0; bucket < buckets; ++bucket) {
          Compute(rank, 4 * kMs);
          Enter(rank);
        }
      }
      Wait(all());
      for (const int32_t rank : all()) Enter(rank);
      Wait(all());
    }
  }

  RankBuilder& operator[](int32_t rank) { return builders_[rank]; }
  JobEvidence Job() const { return JobOf({builders_.begin(), builders_.end()}); }
  Ranks Found() const {
    const auto found = FindStragglers(Job());
    return found ? found->ranks : Ranks();
  }

 private:
  std::vector<int64_t> times_;
  std::vector<RankBuilder> builders_;
  std::map<int32_t, int64_t> slow_;
  int64_t jitter_ = 0;
  std::mt19937 random_{1};
};

TEST(FindStragglersTest, FindStragglers_RankIsLateInEachStep_IsNamedWithTimeAndShare) {
  for (const int32_t ranks : {2, 3, 4, 8}) {
    for (const int buckets : {1, 5}) {
      Training training(ranks);
      training.Slow(1, 38).Jitter(3).Steps(50, buckets);
      const auto found = FindStragglers(training.Job());
      ASSERT_TRUE(found) << ranks << " ranks, " << buckets << " buckets";
      EXPECT_EQ(found->ranks, Ranks{1});
      EXPECT_GT(found->late, absl::Milliseconds(33));
      EXPECT_LT(found->late, absl::Milliseconds(46));
      EXPECT_GT(found->share, 0.2);
      EXPECT_LT(found->share, 0.35);
    }
  }
}

TEST(FindStragglersTest, FindStragglers_SeveralNodes_TextHasTheHost) {
  Training training(4);
  training.Slow(3, 25).Steps(50);
  const auto found = FindStragglers(JobOf({{training[0], training[1]}, {training[2], training[3]}}, 4));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->text,
            "rank 3 (node-b) enters collectives 25 ms after the others, 18% of each step: the job waits "
            "for it");
}

TEST(FindStragglersTest, FindStragglers_TwoStragglers_BothAreNamed) {
  Training training(8);
  training.Slow(2, 40).Slow(5, 38).Jitter(6).Steps(50);
  const auto found = FindStragglers(training.Job());
  ASSERT_TRUE(found);
  EXPECT_EQ(found->ranks, (Ranks{2, 5}));
  EXPECT_NE(found->text.find("ranks 2, 5 enter collectives "), std::string::npos) << found->text;
}

TEST(FindStragglersTest, FindStragglers_Jitter_NoRankIsNamed) {
  for (const int32_t ranks : {2, 4, 16}) {
    for (const int64_t jitter : {0, 5, 60}) {
      Training training(ranks);
      training.Jitter(jitter).Steps(50);
      EXPECT_EQ(training.Found(), Ranks()) << ranks << " ranks, " << jitter << " ms";
    }
  }
}

TEST(FindStragglersTest, FindStragglers_LittleTimeOrFewSteps_NoRankIsNamed) {
  Training little(4);
  little.Slow(1, 4).Steps(50);
  EXPECT_EQ(little.Found(), Ranks()) << "4 ms of 120";
  Training few(4);
  few.Slow(1, 40).Steps(9);
  EXPECT_EQ(few.Found(), Ranks());
}

TEST(FindStragglersTest, FindStragglers_RareEvaluation_NoRankIsNamed) {
  for (const int every : {25, 50}) {
    Training training(4);
    training.Jitter(3);
    for (int step = 0; step < 100; ++step) {
      if (step % every == 0) training.Compute(0, 2000 * kMs);
      training.Steps(1);
    }
    EXPECT_EQ(training.Found(), Ranks()) << every;
  }
}

// Four stages with two replicas each. The first stage is the last to finish its backward.
TEST(FindStragglersTest, FindStragglers_PipelineStages_DifferByDesign) {
  Training training(8);
  training.Jitter(2);
  for (int step = 0; step < 60; ++step) {
    for (const int32_t rank : training.all()) training.Compute(rank, 200 * kMs + (3 - rank / 2) * 20 * kMs);
    for (const int32_t rank : training.all()) {
      const int32_t stage = rank / 2;
      training[rank].Join(absl::StrCat("dp", stage), {2 * stage, 2 * stage + 1});
      training.Enter(rank, absl::StrCat("dp", stage));
    }
    for (int32_t stage = 0; stage < 4; ++stage) training.Wait({2 * stage, 2 * stage + 1});
    for (const int32_t rank : training.all()) training.Enter(rank);  // the norm of all gradients
    training.Wait(training.all());
  }
  EXPECT_EQ(training.Found(), Ranks());
}

TEST(FindStragglersTest, FindStragglers_TwoStagesThatSendToEachOther_AreLeftOut) {
  Training training(2);
  training.Slow(0, 30).Steps(50);
  EXPECT_EQ(training.Found(), Ranks{0});
  training[0].PointToPoint("send 0->1");
  EXPECT_EQ(training.Found(), Ranks());
}

// Rank 1 waits for rank 0 in their tensor-parallel group, and is late for rank 3 therefore.
TEST(FindStragglersTest, FindStragglers_LateBecauseOfAnother_OnlyTheFirstIsNamed) {
  Training training(4);
  for (int step = 0; step < 60; ++step) {
    for (const int32_t rank : training.all()) {
      training.Compute(rank, 100 * kMs + (rank == 0 ? 30 * kMs : 0));
      training[rank].Join("tp", rank < 2 ? Ranks{0, 1} : Ranks{2, 3}).Join("dp", {rank % 2, rank % 2 + 2});
      training.Enter(rank, "tp");
    }
    for (const Ranks& group : {Ranks{0, 1}, Ranks{2, 3}}) training.Wait(group);
    for (const int32_t rank : training.all()) training.Enter(rank, "dp");
    for (const Ranks& group : {Ranks{0, 2}, Ranks{1, 3}}) training.Wait(group);
  }
  EXPECT_EQ(training.Found(), Ranks{0});
}

// A host that is 30 ms behind the others enqueues work for a device which is 400 ms behind it.
TEST(FindStragglersTest, FindStragglers_OperationsWaitForDevices_HostsThatAreBehindDoNotMatter) {
  const auto found = [](int64_t ends_after_ms) {
    Training training(4);
    training.Slow(2, 30).Steps(50);
    for (const int32_t rank : training.all()) {
      for (Collective& operation : *training[rank].Group("default_pg").mutable_collectives()) {
        operation.set_ended_us(operation.entered_us() + ends_after_ms * kMs);
      }
    }
    return training.Found();
  };
  EXPECT_EQ(found(400), Ranks());
  EXPECT_EQ(found(60), Ranks{2});
}

TEST(FindStragglersTest, FindStragglers_RankIsUnknown_NoRankIsNamed) {
  Training training(4);
  training.Slow(2, 30).Steps(50);
  JobEvidence job = training.Job();
  job.nodes[0].mutable_ranks(0)->clear_groups();
  EXPECT_FALSE(FindStragglers(job));
}

TEST(FindStragglersTest, FindStragglers_RandomTimes_AreHarmless) {
  std::mt19937_64 random(7);
  const std::vector<int64_t> extremes = {INT64_MIN, -1, 0, 1, int64_t{1} << 60, (int64_t{1} << 61) - 1};
  for (int i = 0; i < 300; ++i) {
    Training training(1 + static_cast<int32_t>(random() % 4));
    training.Steps(25);
    for (const int32_t rank : training.all()) {
      for (Collective& operation : *training[rank].Group("default_pg").mutable_collectives()) {
        if (random() % 3 == 0) operation.set_entered_us(extremes[random() % extremes.size()]);
        if (random() % 3 == 0) operation.set_ended_us(extremes[random() % extremes.size()]);
        if (random() % 9 == 0) operation.set_number(static_cast<int64_t>(random()));
      }
    }
    for (const int32_t rank : training.Found()) {
      EXPECT_GE(rank, 0);
      EXPECT_LT(rank, 4);
    }
  }
}

}  // namespace
}  // namespace ddprun::launcher
