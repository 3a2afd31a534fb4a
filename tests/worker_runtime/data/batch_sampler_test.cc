// Every sample occurs exactly once per epoch even if the world changes; while it does not, the order is that of
// DistributedSampler.
#include "worker_runtime/data/batch_sampler.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "worker_runtime/data/distributed_sampler.h"

namespace ddprun::testing {
namespace {

// One step of all ranks, each of which has its own sampler.
std::vector<Batch> Step(std::vector<BatchSampler>& ranks) {
  std::vector<Batch> batches;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    ranks[rank].SetWorld(static_cast<int>(rank), static_cast<int>(ranks.size()));
    batches.push_back(ranks[rank].Next());
  }
  return batches;
}

TEST(BatchSampler, Next_WorldSizeIsConstant_EqualsDistributedSampler) {
  for (const int world : {1, 2, 3, 8}) {
    for (const bool shuffle : {true, false}) {
      constexpr int64_t kBatch = 5;
      const int64_t length = kBatch * world * 7;
      std::vector<BatchSampler> ranks(world,
                                      BatchSampler(length, {.batch_size = kBatch, .shuffle = shuffle, .seed = 9}));
      for (int epoch = 0; epoch < 3; ++epoch) {
        std::vector<DistributedSampler> theirs;
        for (int rank = 0; rank < world; ++rank) {
          theirs.push_back(*DistributedSampler::Create(
              length, {.num_replicas = world, .rank = rank, .shuffle = shuffle, .seed = 9}));
          theirs.back().set_epoch(epoch);
        }
        for (int step = 0; step < 7; ++step) {
          const std::vector<Batch> batches = Step(ranks);
          for (int rank = 0; rank < world; ++rank) {
            EXPECT_EQ(batches[rank].indices, theirs[rank].next(kBatch));
            EXPECT_EQ(batches[rank].epoch, epoch);
            EXPECT_EQ(batches[rank].loss_weight, 1.0) << "exactly, so that the loss keeps its bits";
            EXPECT_FALSE(batches[rank].padding);
          }
        }
      }
    }
  }
}

TEST(BatchSampler, Next_UnevenLastStep_WeightsGiveTheMeanOverTheBatch) {
  // 11 samples, 4 ranks of 2: a step of 8, then one of 3.
  std::vector<BatchSampler> ranks(4, BatchSampler(11, {.batch_size = 2, .shuffle = false}));
  Step(ranks);
  const std::vector<Batch> last = Step(ranks);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(last[rank].indices, std::vector<size_t>{8u + rank});
    EXPECT_DOUBLE_EQ(last[rank].loss_weight, 4.0 / 3);
    EXPECT_EQ(last[rank].global_size, 3);
  }
  EXPECT_TRUE(last[3].padding);
  EXPECT_EQ(last[3].loss_weight, 0);
  EXPECT_EQ(last[3].indices.size(), 1);
  EXPECT_EQ(Step(ranks)[0].epoch, 1);
}

TEST(BatchSampler, Next_KeepGlobalBatch_DividesItEvenly) {
  std::vector<BatchSampler> ranks(3, BatchSampler(100, {.batch_size = 8, .keep_global_batch = true}));
  const std::vector<Batch> batches = Step(ranks);
  EXPECT_EQ(batches[0].indices.size(), 3);
  EXPECT_EQ(batches[1].indices.size(), 3);
  EXPECT_EQ(batches[2].indices.size(), 2);
  EXPECT_EQ(ranks[0].position(), 8);
  ranks.resize(5, ranks[0]);
  for (const Batch& batch : Step(ranks)) EXPECT_EQ(batch.global_size, 8);
}

TEST(BatchSampler, AnyMethod_InvalidArgument_ReturnsError) {
  EXPECT_THROW(BatchSampler(0, {}), std::invalid_argument);
  EXPECT_THROW(BatchSampler(1, {.batch_size = 0}), std::invalid_argument);
  BatchSampler sampler(10, {});
  EXPECT_TRUE(absl::IsInvalidArgument(sampler.Seek(0, 11)));
  EXPECT_TRUE(absl::IsInvalidArgument(sampler.Seek(-1, 0)));
  EXPECT_TRUE(sampler.Seek(2, 10).ok());
  EXPECT_EQ(sampler.Next().epoch, 3);
}

TEST(BatchSampler, Next_LargestBatchSize_ReturnsTheWholeEpoch) {
  BatchSampler sampler(10, {.batch_size = std::numeric_limits<int64_t>::max()});
  sampler.SetWorld(1, 3);
  EXPECT_EQ(sampler.Next().indices.size(), 3);
  EXPECT_EQ(sampler.position(), 10);
}

// Random trainings: ranks die in the middle of a step, which is then rolled back, or at its end, after some have
// committed it. The next round has other ranks, which continue from the most advanced one. The ledger lists the samples
// of committed steps.
TEST(BatchSampler, Next_WorldSizeChanges_ReturnsEachSampleOncePerEpoch) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const auto upto = [&random](int64_t most) { return static_cast<int64_t>(random() % (most + 1)); };
    const int64_t length = 1 + upto(200);
    const BatchSampler fresh(length, {.batch_size = 1 + upto(12),
                                      .keep_global_batch = upto(1) == 1,
                                      .shuffle = upto(3) != 0,
                                      .seed = static_cast<int64_t>(seed)});
    std::vector<BatchSampler> ranks(1 + upto(7), fresh);
    std::map<int64_t, std::multiset<size_t>> ledger;
    while (ranks[0].epoch() < 4) {
      const std::vector<BatchSampler> committed = ranks;
      const std::vector<Batch> batches = Step(ranks);
      double weights = 0;
      int64_t samples = 0;
      for (const Batch& batch : batches) {
        weights += batch.loss_weight;
        samples += batch.padding ? 0 : static_cast<int64_t>(batch.indices.size());
        ASSERT_EQ(batch.global_size, batches[0].global_size);
        ASSERT_FALSE(batch.indices.empty());
        ASSERT_EQ(batch.padding, batch.loss_weight == 0);
      }
      ASSERT_EQ(samples, batches[0].global_size);
      ASSERT_NEAR(weights, static_cast<double>(ranks.size()), 1e-9);
      const int64_t fate = upto(9);
      const bool lost = fate == 0;
      if (!lost) {
        for (const Batch& batch : batches) {
          if (!batch.padding) ledger[batch.epoch].insert(batch.indices.begin(), batch.indices.end());
        }
      }
      if (lost) ranks = committed;
      if (fate > 1) continue;
      const BatchSampler source = ranks[upto(static_cast<int64_t>(ranks.size()) - 1)];
      BatchSampler newcomer = fresh;
      ASSERT_TRUE(newcomer.Seek(source.epoch(), source.position()).ok());
      ranks.assign(1 + upto(7), newcomer);
    }
    for (int64_t epoch = 0; epoch < 4; ++epoch) {
      ASSERT_EQ(ledger[epoch].size(), length);
      ASSERT_EQ(std::set<size_t>(ledger[epoch].begin(), ledger[epoch].end()).size(), length);
      ASSERT_EQ(*ledger[epoch].rbegin(), length - 1);
    }
  }
}

}  // namespace
}  // namespace ddprun::testing
