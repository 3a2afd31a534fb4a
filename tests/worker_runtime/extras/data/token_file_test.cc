#include "worker_runtime/extras/data/token_file.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/data/dataloader.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "worker_runtime/base/torch_try.h"
#include "worker_runtime/data/distributed_sampler.h"

namespace ddprun {
namespace {

using ::testing::StartsWith;

class TokenFileTest : public ::testing::Test {
 protected:
  TokenFileTest() : path_(::testing::TempDir() + "/tokens.bin") {}
  ~TokenFileTest() override { std::filesystem::remove(path_); }

  template <typename Token>
  void Write(const std::vector<Token>& tokens) {
    std::ofstream file(path_, std::ios::binary);
    file.write(reinterpret_cast<const char*>(tokens.data()),
               static_cast<std::streamsize>(tokens.size() * sizeof(Token)));
  }
  // Writes 0, 1, 2, ...
  void WriteNumbers(int count) {
    std::vector<uint16_t> tokens;
    for (int i = 0; i < count; ++i) tokens.push_back(static_cast<uint16_t>(i));
    Write(tokens);
  }
  std::string ErrorOf(const TokenFileOptions& options) {
    const absl::Status status = TokenFile::Open(path_, options).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    return std::string(status.message());
  }

  const std::string path_;
};

// Error of reading a sequence, without LibTorch's stack trace; empty if there is none.
std::string ErrorOfGet(const TokenFile& file, size_t index) {
  return std::string(TorchTry("", [&] {
                       file.get(index);
                       return absl::OkStatus();
                     }).message());
}

TEST_F(TokenFileTest, Sequences_FollowEachOther_TargetsAreShiftedByOne) {
  WriteNumbers(12);
  const absl::StatusOr<TokenFile> file = TokenFile::Open(path_, {.sequence_length = 4});
  EXPECT_EQ(file->tokens(), 12);
  EXPECT_EQ(file->size(), 2u);  // the third one's last target is missing
  EXPECT_TRUE(at::equal(file->get(1).data, at::arange(4, 8)));
  EXPECT_TRUE(at::equal(file->get(1).target, at::arange(5, 9)));
  const torch::data::Example<> batch = file->get_batch({1, 0});
  EXPECT_TRUE(at::equal(batch.data, at::tensor({4, 5, 6, 7, 0, 1, 2, 3}, at::kLong).view({2, 4})));
  EXPECT_TRUE(at::equal(batch.target, batch.data + 1));
  WriteNumbers(13);
  EXPECT_EQ(TokenFile::Open(path_, {.sequence_length = 4})->size(), 3u);
}

TEST_F(TokenFileTest, LargestTokens_AreNotNegative) {
  Write<uint16_t>({65535, 32768, 1});
  EXPECT_TRUE(
      at::equal(TokenFile::Open(path_, {.sequence_length = 2})->get(0).data, at::tensor({65535, 32768}, at::kLong)));
  Write<uint32_t>({4294967295u, 100000, 2});
  const absl::StatusOr<TokenFile> wide = TokenFile::Open(path_, {.sequence_length = 2, .dtype = at::kUInt32});
  EXPECT_TRUE(at::equal(wide->get(0).data, at::tensor({int64_t{4294967295}, int64_t{100000}}, at::kLong)));
  EXPECT_TRUE(at::equal(wide->get(0).target, at::tensor({100000, 2}, at::kLong)));
}

TEST_F(TokenFileTest, DataLoader_WithSampler_GivesEachRankItsShare) {
  WriteNumbers(41);
  std::multiset<int64_t> first_tokens;
  for (int rank = 0; rank < 2; ++rank) {
    const absl::StatusOr<TokenFile> file = TokenFile::Open(path_, {.sequence_length = 4});
    auto sampler = DistributedSampler::Create(static_cast<int64_t>(*file->size()), {.num_replicas = 2, .rank = rank});
    auto loader = torch::data::make_data_loader(*file, *sampler, torch::data::DataLoaderOptions(2).workers(1));
    int batches = 0;
    for (const torch::data::Example<>& batch : *loader) {
      ++batches;
      for (int64_t i = 0; i < batch.data.size(0); ++i) first_tokens.insert(batch.data[i][0].item<int64_t>());
    }
    EXPECT_EQ(batches, 3);
  }
  EXPECT_EQ(first_tokens, (std::multiset<int64_t>{0, 4, 8, 12, 16, 20, 24, 28, 32, 36}));
}

// A sparse file of 64 GiB, which would not fit into the memory of a test machine.
TEST_F(TokenFileTest, HugeFile_OnlyTheSequenceIsRead) {
  Write<uint16_t>({7});
  const int64_t tokens = int64_t{32} << 30;
  ASSERT_EQ(truncate(path_.c_str(), tokens * 2), 0);
  {
    std::fstream end(path_, std::ios::binary | std::ios::in | std::ios::out);
    end.seekp(-2, std::ios::end);
    end.write("\x39\x05", 2);
  }
  const absl::StatusOr<TokenFile> file = TokenFile::Open(path_, {.sequence_length = 4095});
  EXPECT_EQ(file->tokens(), tokens);
  EXPECT_EQ(file->get(0).data[0].item<int64_t>(), 7);
  const absl::StatusOr<TokenFile> last = TokenFile::Open(path_, {.sequence_length = tokens / 2 - 1});
  EXPECT_EQ(last->size(), 2u);
  const absl::StatusOr<TokenFile> ends = TokenFile::Open(path_, {.sequence_length = 1});
  EXPECT_EQ(ends->get(static_cast<size_t>(tokens) - 2).target[0].item<int64_t>(), 0x539);
}

TEST_F(TokenFileTest, TokenBeyondTheVocabulary_SaysWhereItIs) {
  Write<uint16_t>({1, 2, 3, 50257, 5, 6, 50300, 7, 8});
  const absl::StatusOr<TokenFile> file = TokenFile::Open(path_, {.sequence_length = 2, .vocab_size = 50257});
  EXPECT_EQ(ErrorOfGet(*file, 0), "");
  EXPECT_THAT(ErrorOfGet(*file, 1), StartsWith(path_ + ": token 3 is 50257, but must be less than vocab_size, 50257"));
  EXPECT_NE(ErrorOfGet(*file, 2), "") << "the last target";
  EXPECT_EQ(ErrorOfGet(*TokenFile::Open(path_, {.sequence_length = 2, .vocab_size = 50301}), 3), "");
  EXPECT_EQ(ErrorOfGet(*file, 4), path_ + ": there is no sequence 4; it has 4");
}

TEST_F(TokenFileTest, FilesThatAreNone_AreNamed) {
  EXPECT_TRUE(absl::IsNotFound(TokenFile::Open(path_, {}).status()));
  EXPECT_TRUE(absl::StrContains(TokenFile::Open(path_, {}).status().message(), path_));
  Write<uint16_t>({});
  EXPECT_EQ(ErrorOf({}), path_ + ": is empty");
  WriteNumbers(5);
  EXPECT_THAT(ErrorOf({.sequence_length = 5}), StartsWith(path_ + ": has 5 tokens, fewer than the 6"));
  EXPECT_THAT(ErrorOf({.dtype = at::kUInt32}), StartsWith(path_ + ": has 10 bytes, which is not a multiple of the 4"));
  EXPECT_EQ(ErrorOf({.dtype = at::kInt}), path_ + ": dtype must be kUInt16 or kUInt32, got Int");
  EXPECT_EQ(ErrorOf({.sequence_length = 0}), path_ + ": sequence_length must be at least 1, got 0");
  const absl::Status folder = TokenFile::Open(::testing::TempDir(), {}).status();
  EXPECT_EQ(folder.message(), ::testing::TempDir() + ": is not a regular file");
}

}  // namespace
}  // namespace ddprun
