// A rank's share of the indices is that of Python's DistributedSampler, and satisfies its invariants.
#include "worker_runtime/data/distributed_sampler.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <torch/data/dataloader.h>
#include <torch/serialize/archive.h>

#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "examples/cpp/gpt/text_dataset.h"
#include "tests/testing/process.h"
#include "worker_runtime/data/batch_sampler.h"

namespace ddprun::testing {
namespace {

std::vector<size_t> Rest(DistributedSampler& sampler, size_t batch = 7) {
  std::vector<size_t> all;
  while (auto some = sampler.next(batch)) all.insert(all.end(), some->begin(), some->end());
  return all;
}

DistributedSampler Make(int64_t length, DistributedSamplerOptions options) {
  absl::StatusOr<DistributedSampler> sampler = DistributedSampler::Create(length, options);
  EXPECT_TRUE(sampler.ok()) << sampler.status();
  return *std::move(sampler);
}

TEST(DistributedSamplerTest, Next_AnySettings_EqualsPythons) {
  if (VenvPython().empty()) GTEST_SKIP() << "no .venv with torch (scripts/setup makes one)";
  Process python({VenvPython(), "tests/worker_runtime/data/distributed_sampler.py"});
  ASSERT_EQ(python.Wait(), 0) << python.Err();
  std::istringstream lines(python.Out());
  int settings = 0;
  for (std::string line; std::getline(lines, line); ++settings) {
    std::istringstream words(line);
    int64_t length = 0, epoch = 0;
    DistributedSamplerOptions options;
    std::string colon;
    words >> length >> options.num_replicas >> options.rank >> options.shuffle >> options.seed >> epoch >>
        options.drop_last >> colon;
    ASSERT_EQ(colon, ":") << line;
    std::vector<size_t> theirs;
    for (size_t index; words >> index;) theirs.push_back(index);
    DistributedSampler sampler = Make(length, options);
    sampler.set_epoch(epoch);
    EXPECT_EQ(sampler.size(), theirs.size()) << line.substr(0, 60);
    EXPECT_EQ(Rest(sampler), theirs) << line.substr(0, 60);
  }
  EXPECT_EQ(settings, 1082);
}

TEST(RandomPermutationTest, RandomPermutation_AnySize_EqualsRandperm) {
  for (const int64_t length : {0, 1, 2, 63, 64, 65, 66, 128, 129, 130, 1000, 100000}) {
    const uint64_t seed = 40 + length;
    const at::Tensor theirs = at::randperm(length, at::detail::createCPUGenerator(seed));
    const std::vector<int64_t> expected(theirs.const_data_ptr<int64_t>(), theirs.const_data_ptr<int64_t>() + length);
    std::vector<uint32_t> narrow(length);
    RandomPermutation(seed, absl::MakeSpan(narrow));
    EXPECT_EQ(std::vector<int64_t>(narrow.begin(), narrow.end()), expected) << length;
    std::vector<uint64_t> wide(length);
    RandomPermutation(seed, absl::MakeSpan(wide));
    EXPECT_EQ(std::vector<int64_t>(wide.begin(), wide.end()), expected) << length;
  }
}

TEST(DistributedSamplerTest, Next_AllRanks_ReturnEachSampleOnce) {
  for (const int64_t length : {1, 6, 7, 50, 101, 128}) {
    for (const int replicas : {1, 2, 3, 8}) {
      for (const bool shuffle : {false, true}) {
        for (const bool drop_last : {false, true}) {
          std::map<size_t, int> times;
          int64_t total = 0;
          for (int rank = 0; rank < replicas; ++rank) {
            DistributedSampler sampler =
                Make(length, {.num_replicas = replicas, .rank = rank, .shuffle = shuffle, .drop_last = drop_last});
            const std::vector<size_t> share = Rest(sampler);
            EXPECT_EQ(share.size(), drop_last ? length / replicas : (length + replicas - 1) / replicas);
            for (const size_t index : share) ++times[index];
            total += share.size();
          }
          const int64_t repeated = drop_last ? 0 : total - length;
          EXPECT_EQ(times.size(), drop_last ? total : length);
          int64_t more_than_once = 0;
          for (const auto& [index, count] : times) {
            EXPECT_LT(index, length);
            more_than_once += count - 1;
          }
          EXPECT_EQ(more_than_once, repeated);
        }
      }
    }
  }
}

TEST(DistributedSamplerTest, SetEpoch_AnyEpoch_DiffersAndRepeats) {
  DistributedSampler sampler = Make(100, {});
  const std::vector<size_t> first = Rest(sampler);
  EXPECT_EQ(sampler.next(1), std::nullopt);
  sampler.set_epoch(1);
  EXPECT_NE(Rest(sampler), first);
  sampler.set_epoch(0);
  EXPECT_EQ(Rest(sampler), first);
  sampler.reset();
  EXPECT_EQ(Rest(sampler), first);
}

TEST(DistributedSamplerTest, SetEpoch_WithPosition_ContinuesThere) {
  DistributedSampler sampler = Make(100, {.num_replicas = 2, .rank = 1});
  sampler.set_epoch(4);
  const std::vector<size_t> all = Rest(sampler);
  sampler.reset();
  (void)sampler.next(13);
  EXPECT_EQ(sampler.position(), 13);

  DistributedSampler resumed = Make(100, {.num_replicas = 2, .rank = 1});
  resumed.set_epoch(sampler.epoch(), sampler.position());
  resumed.reset();  // a data loader does it before its first batch
  EXPECT_EQ(Rest(resumed), std::vector<size_t>(all.begin() + 13, all.end()));
  resumed.reset();
  EXPECT_EQ(Rest(resumed), all);
  resumed.set_epoch(4, 1000);
  EXPECT_EQ(resumed.position(), 50);
  EXPECT_EQ(resumed.next(1), std::nullopt);
}

// Follows the documentation: resume in the middle of an epoch, and call set_epoch in every epoch.
TEST(DistributedSamplerTest, SetEpoch_AfterResuming_KeepsThePosition) {
  DistributedSampler sampler = Make(100, {.num_replicas = 2, .rank = 1});
  sampler.set_epoch(4);
  const std::vector<size_t> all = Rest(sampler);
  DistributedSampler resumed = Make(100, {.num_replicas = 2, .rank = 1});
  resumed.set_epoch(4, 13);
  resumed.set_epoch(4);
  resumed.reset();
  EXPECT_EQ(Rest(resumed), std::vector<size_t>(all.begin() + 13, all.end()));
  resumed.set_epoch(4);  // once more: from the beginning
  EXPECT_EQ(Rest(resumed), all);

  resumed.set_epoch(3, 13);
  resumed.set_epoch(4);  // not the epoch that was resumed
  EXPECT_EQ(Rest(resumed), all);
  resumed.set_epoch(4, 13);
  resumed.set_epoch(4, 0);
  EXPECT_EQ(Rest(resumed), all);
}

// Two worker threads prefetch batches; the trainer stops after two of five and resumes in another loader.
TEST(DistributedSamplerTest, MarkUsed_LoaderWithThreads_ResumesAfterTheLastBatchUsed) {
  const absl::StatusOr<TextDataset> dataset = TextDataset::FromText(std::string(25 * 4 + 1, 'x'), 4);
  const auto options = torch::data::DataLoaderOptions(5).workers(2);
  DistributedSampler whole = Make(25, {});
  whole.set_epoch(2);
  const std::vector<size_t> all = Rest(whole);
  int64_t position = 0;
  {
    DistributedSampler sampler = Make(25, {});
    const auto loader = torch::data::make_data_loader(*dataset, sampler, options);
    sampler.set_epoch(2);
    auto batch = loader->begin();
    for (int used = 0; used < 2; ++used, ++batch) sampler.MarkUsed(batch->tokens.size(0));
    position = sampler.position();
  }
  EXPECT_EQ(position, 10);
  DistributedSampler resumed = Make(25, {});
  resumed.set_epoch(2, position);
  const auto loader = torch::data::make_data_loader(*dataset, resumed, options);
  resumed.set_epoch(2);
  for (const TextDataset::Example& batch : *loader) resumed.MarkUsed(batch.tokens.size(0));
  EXPECT_EQ(resumed.position(), 25);
  resumed.set_epoch(2, position);
  EXPECT_EQ(Rest(resumed), std::vector<size_t>(all.begin() + 10, all.end()));
  resumed.set_epoch(3);
  EXPECT_EQ(resumed.position(), 0);
}

TEST(DistributedSamplerTest, Reset_NewSize_UsesIt) {
  DistributedSampler sampler = Make(10, {.num_replicas = 2});
  (void)sampler.next(5);
  sampler.reset(30);
  EXPECT_EQ(sampler.size(), 15);
  DistributedSampler fresh = Make(30, {.num_replicas = 2});
  EXPECT_EQ(Rest(sampler), Rest(fresh));
}

TEST(DistributedSamplerTest, Archive_KeepsEpochAndPosition) {
  DistributedSampler sampler = Make(100, {});
  sampler.set_epoch(7);
  (void)sampler.next(30);
  std::stringstream file;
  torch::serialize::OutputArchive out;
  sampler.save(out);
  out.save_to(file);
  const std::vector<size_t> rest = Rest(sampler);

  torch::serialize::InputArchive in;
  in.load_from(file);
  DistributedSampler loaded = Make(100, {});
  loaded.load(in);
  EXPECT_EQ(loaded.epoch(), 7);
  EXPECT_EQ(Rest(loaded), rest);
}

TEST(DistributedSamplerTest, SetEpoch_CopyInADataLoader_FollowsIt) {
  std::string text;
  for (int i = 0; i < 101; ++i) text.push_back(static_cast<char>(' ' + i % 90));
  const absl::StatusOr<TextDataset> dataset = TextDataset::FromText(text, 4);
  DistributedSampler sampler = Make(dataset->block_count(), {.num_replicas = 2, .rank = 1});
  const auto loader = torch::data::make_data_loader(*dataset, sampler, torch::data::DataLoaderOptions(5).workers(2));
  for (const int64_t epoch : {0, 1}) {
    DistributedSampler twin = Make(dataset->block_count(), {.num_replicas = 2, .rank = 1});
    twin.set_epoch(epoch);
    sampler.set_epoch(epoch);
    int batches = 0;
    for (const TextDataset::Example& batch : *loader) {
      const TextDataset::Example expected = dataset->get_batch(*twin.next(5));
      EXPECT_TRUE(at::equal(batch.tokens, expected.tokens));
      EXPECT_TRUE(at::equal(batch.targets, expected.targets));
      ++batches;
    }
    EXPECT_EQ(batches, 3);  // 25 blocks, 13 for each rank
  }
}

TEST(DistributedSamplerTest, Create_InvalidOptions_ErrorNamesThem) {
  const auto error = [](int64_t length, DistributedSamplerOptions options) {
    const absl::Status status = DistributedSampler::Create(length, options).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_EQ(error(-1, {}), "length is -1, but must not be negative");
  EXPECT_EQ(error(10, {.num_replicas = 0}),
            "num_replicas is 0, but must be at least 1 (the size of the process group)");
  EXPECT_EQ(error(10, {.num_replicas = 2, .rank = 2}), "rank is 2, but must be in the interval [0, 1]");
  EXPECT_EQ(error(10, {.num_replicas = 2, .rank = -1}), "rank is -1, but must be in the interval [0, 1]");
}

}  // namespace
}  // namespace ddprun::testing
