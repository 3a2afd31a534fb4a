#ifndef DDPRUN_EXAMPLES_CPP_GPT_TEXT_DATASET_H_
#define DDPRUN_EXAMPLES_CPP_GPT_TEXT_DATASET_H_

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ddprun {

// The licence texts that every Debian machine has.
inline constexpr char kDefaultText[] = "/usr/share/common-licenses";

// Returns the text of a file, or of all files of a directory (without symbolic links) in name order.
// NotFound: it does not exist, or the directory has no files. Unavailable: it can't be read.
absl::StatusOr<std::string> ReadText(const std::string& path);

// A text split into blocks of characters, for next-character prediction. A token is a character's index in the
// vocabulary: the distinct characters of the text (Unicode code points) in ascending order.
//
// Works with torch::data::make_data_loader (without torch::data's headers), which copies it; copies share the text.
// Needs one byte per character, or four if there are more than 256 distinct ones. Immutable, so thread-safe.
class TextDataset {
 public:
  // int64 [block_size] or [batch, block_size]. targets are the tokens shifted by one.
  struct Example {
    at::Tensor tokens;
    at::Tensor targets;
  };

  // `text` is UTF-8. InvalidArgument: it is not (the message has the position), it has `block_size` characters or
  // fewer, or block_size is less than 1.
  static absl::StatusOr<TextDataset> FromText(absl::string_view text, int64_t block_size);

  // Blocks do not overlap; an incomplete block at the end is dropped.
  int64_t block_count() const;
  int64_t block_size() const { return block_size_; }
  int64_t vocab_size() const;
  // The characters in the order of their tokens, as UTF-8. Save it in a checkpoint to verify the text later.
  const std::string& vocabulary() const;

  // REQUIRES: 0 <= index < block_count(), of all indices.
  Example get(size_t index) const;
  Example get_batch(const std::vector<size_t>& indices) const;

  // The text of `tokens`: integers of any shape, each less than vocab_size().
  std::string Decode(const at::Tensor& tokens) const;
  // The tokens of a text: int64 [characters]. InvalidArgument names a character that is not in the vocabulary.
  absl::StatusOr<at::Tensor> Encode(absl::string_view text) const;

  // Required by torch::data.
  using BatchType = Example;
  using BatchRequestType = std::vector<size_t>;
  static constexpr bool is_stateful = false;
  std::optional<size_t> size() const { return static_cast<size_t>(block_count()); }

 private:
  struct Text;
  TextDataset(std::shared_ptr<const Text> text, int64_t block_size);

  std::shared_ptr<const Text> text_;
  int64_t block_size_;
};

}  // namespace ddprun

#endif  // DDPRUN_EXAMPLES_CPP_GPT_TEXT_DATASET_H_
