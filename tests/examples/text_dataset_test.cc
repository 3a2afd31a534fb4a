#include "examples/cpp/gpt/text_dataset.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ddprun::testing {
namespace {

std::string ErrorOf(absl::string_view text, int64_t block_size) {
  const absl::Status status = TextDataset::FromText(text, block_size).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  return std::string(status.message());
}

TEST(TextDatasetTest, Blocks_Text_AreConsecutive) {
  const absl::StatusOr<TextDataset> dataset = TextDataset::FromText("abcabcabd", 3);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ(dataset->vocab_size(), 4);
  EXPECT_EQ(dataset->vocabulary(), "abcd");
  EXPECT_EQ(dataset->block_count(), 2);  // the third block lacks its last target
  const TextDataset::Example last = dataset->get(1);
  EXPECT_EQ(last.tokens.scalar_type(), at::kLong);
  EXPECT_TRUE(at::equal(last.tokens, at::tensor({0, 1, 2}, at::kLong)));
  EXPECT_TRUE(at::equal(last.targets, at::tensor({1, 2, 0}, at::kLong)));
  const TextDataset::Example batch = dataset->get_batch({1, 0, 1});
  EXPECT_EQ(batch.tokens.sizes(), (std::vector<int64_t>{3, 3}));
  EXPECT_TRUE(at::equal(batch.targets[2], last.targets));
  EXPECT_EQ(dataset->get_batch({}).tokens.sizes(), (std::vector<int64_t>{0, 3}));
}

TEST(TextDatasetTest, Tokens_Characters_AreCodePointsInOrder) {
  const std::string text =
      "z\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80"
      "a\xef\xbf\xbf";
  const absl::StatusOr<TextDataset> dataset = TextDataset::FromText(text, 2);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ(dataset->vocabulary(), "az\xc3\xa4\xe2\x82\xac\xef\xbf\xbf\xf0\x9f\x98\x80");
  const absl::StatusOr<at::Tensor> tokens = dataset->Encode(text);
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  EXPECT_TRUE(at::equal(*tokens, at::tensor({1, 2, 3, 5, 0, 4}, at::kLong)));
  EXPECT_EQ(dataset->Decode(*tokens), text);
  EXPECT_EQ(dataset->Encode("a\xe2\x82\xad").status().message(), "character \"\xe2\x82\xad\" is not in the vocabulary");
}

TEST(TextDatasetTest, Tokens_MoreThan256Characters_AreDistinct) {
  std::string text;
  for (int i = 0; i < 300; ++i) {
    text.push_back(static_cast<char>(0xc4 + i / 64));
    text.push_back(static_cast<char>(0x80 + i % 64));
  }
  const absl::StatusOr<TextDataset> dataset = TextDataset::FromText(text, 299);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ(dataset->vocab_size(), 300);
  EXPECT_TRUE(at::equal(dataset->get(0).targets, at::arange(1, 300)));
}

TEST(TextDatasetTest, FromText_Invalid_ErrorSaysWhatToDo) {
  EXPECT_EQ(ErrorOf("abc", 3),
            "the text has 3 characters, but a block of 3 needs 4; use a longer text or a smaller block_size");
  EXPECT_EQ(ErrorOf("", 1),
            "the text has 0 characters, but a block of 1 needs 2; use a longer text or a smaller block_size");
  EXPECT_EQ(ErrorOf("abc", 0), "block_size is 0, but must be at least 1");
  EXPECT_EQ(ErrorOf("abc\xff"
                    "d",
                    2),
            "invalid UTF-8 at byte 3; convert the text first");
  EXPECT_EQ(ErrorOf("abc\xc3", 2), "invalid UTF-8 at byte 3; convert the text first");
}

}  // namespace
}  // namespace ddprun::testing
