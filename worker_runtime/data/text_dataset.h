#ifndef DDPRUN_WORKER_RUNTIME_DATA_TEXT_DATASET_H_
#define DDPRUN_WORKER_RUNTIME_DATA_TEXT_DATASET_H_

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

// A text cut into blocks of characters, to learn which character comes next. Tokens are the characters' places in the
// vocabulary: all different characters of the text (Unicode code points), ascending.
//
// Fits torch::data::make_data_loader (without torch::data's headers), which copies it: copies share the text. Needs one
// byte for each character, four if there are more than 256 different ones. Immutable, so thread-safe.
class TextDataset {
 public:
  // int64 [block_size], or [batch, block_size]; targets are the tokens one place on.
  struct Example {
    at::Tensor tokens;
    at::Tensor targets;
  };

  // `text` is UTF-8. InvalidArgument: it is not (names the place), it has no more than `block_size` characters, or
  // block_size is less than 1.
  static absl::StatusOr<TextDataset> FromText(absl::string_view text, int64_t block_size);

  // The same from a file; errors name it. NotFound: there is none. PermissionDenied, Unavailable: it can't be read.
  static absl::StatusOr<TextDataset> FromFile(const std::string& path, int64_t block_size);

  // The blocks lie one after the other; what does not fill a block at the end is left out.
  int64_t block_count() const;
  int64_t block_size() const { return block_size_; }
  int64_t vocab_size() const;
  // The characters in the order of their tokens, as UTF-8: what a checkpoint keeps to know its text again.
  const std::string& vocabulary() const;

  // REQUIRES: 0 <= index < block_count(), of all indices.
  Example get(size_t index) const;
  Example get_batch(const std::vector<size_t>& indices) const;

  // The text of tokens (integers of any shape, each below vocab_size()).
  std::string Decode(const at::Tensor& tokens) const;
  // The tokens of a text: int64 [characters]. InvalidArgument names a character that is not in the vocabulary.
  absl::StatusOr<at::Tensor> Encode(absl::string_view text) const;

  // What torch::data asks of a data set.
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

#endif  // DDPRUN_WORKER_RUNTIME_DATA_TEXT_DATASET_H_
