#include "examples/cpp/gpt/text_dataset.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/text.h"

namespace ddprun {
namespace {

constexpr uint32_t kCodePoints = 0x110000;

// The code point of one valid UTF-8 character.
uint32_t CodePoint(absl::string_view character) {
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<unsigned char>(character[i])); };
  if (character.size() == 1) return byte(0);
  uint32_t code = byte(0) & (0x7f >> character.size());
  for (size_t i = 1; i < character.size(); ++i) code = code << 6 | (byte(i) & 0x3f);
  return code;
}

void AppendUtf8(uint32_t code, std::string* out) {
  const auto more = [&](int shift) { out->push_back(static_cast<char>(0x80 | (code >> shift & 0x3f))); };
  if (code < 0x80) {
    out->push_back(static_cast<char>(code));
  } else if (code < 0x800) {
    out->push_back(static_cast<char>(0xc0 | code >> 6));
    more(0);
  } else if (code < 0x10000) {
    out->push_back(static_cast<char>(0xe0 | code >> 12));
    more(6);
    more(0);
  } else {
    out->push_back(static_cast<char>(0xf0 | code >> 18));
    more(12);
    more(6);
    more(0);
  }
}

// Calls visit(character) for each character. Stops with an error at the first invalid UTF-8.
template <typename Visit>
absl::Status ForEachCharacter(absl::string_view text, Visit visit) {
  for (size_t at = 0; at < text.size();) {
    const size_t length = Utf8CharacterLength(text.substr(at));
    if (length == 0) {
      return absl::InvalidArgumentError(absl::StrCat("invalid UTF-8 at byte ", at, "; convert the text first"));
    }
    visit(text.substr(at, length));
    at += length;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> ReadText(const std::string& path) {
  std::vector<std::filesystem::path> files;
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    for (std::filesystem::directory_iterator entry(path, error), end; !error && entry != end; entry.increment(error)) {
      if (entry->is_regular_file(error) && !entry->is_symlink(error)) files.push_back(entry->path());
    }
    std::sort(files.begin(), files.end());
  } else if (std::filesystem::exists(path, error)) {
    files.push_back(path);
  }
  if (files.empty()) {
    return absl::NotFoundError(absl::StrCat("there is no text at ", path, ": give a file or a folder with --text"));
  }
  std::string text;
  for (const std::filesystem::path& file : files) {
    std::ifstream stream(file, std::ios::binary);
    text.append(std::istreambuf_iterator<char>(stream), {});
    if (!stream) return absl::UnavailableError(absl::StrCat("the text ", file.string(), " can't be read"));
  }
  return text;
}

struct TextDataset::Text {
  std::vector<uint32_t> code_points;  // code point of each token, ascending
  std::string vocabulary;
  std::variant<std::vector<uint8_t>, std::vector<uint32_t>> tokens;

  int64_t Length() const {
    return std::visit([](const auto& all) { return static_cast<int64_t>(all.size()); }, tokens);
  }

  void Copy(int64_t begin, int64_t count, int64_t* out) const {
    std::visit([&](const auto& all) { std::copy_n(all.begin() + begin, count, out); }, tokens);
  }
};

absl::StatusOr<TextDataset> TextDataset::FromText(absl::string_view text, int64_t block_size) {
  if (block_size < 1) {
    return absl::InvalidArgumentError(absl::StrCat("block_size is ", block_size, ", but must be at least 1"));
  }
  std::vector<bool> seen(kCodePoints, false);
  int64_t length = 0;
  absl::Status status = ForEachCharacter(text, [&](absl::string_view character) {
    seen[CodePoint(character)] = true;
    ++length;
  });
  if (!status.ok()) return status;
  if (length <= block_size) {
    return absl::InvalidArgumentError(absl::StrCat("the text has ", length, " characters, but a block of ", block_size,
                                                   " needs ", block_size + 1,
                                                   "; use a longer text or a smaller block_size"));
  }
  auto result = std::make_shared<Text>();
  std::vector<uint32_t> token_of(kCodePoints, 0);
  for (uint32_t code = 0; code < kCodePoints; ++code) {
    if (!seen[code]) continue;
    token_of[code] = static_cast<uint32_t>(result->code_points.size());
    result->code_points.push_back(code);
    AppendUtf8(code, &result->vocabulary);
  }
  if (result->code_points.size() > 256) result->tokens.emplace<std::vector<uint32_t>>();
  status = std::visit(
      [&](auto& tokens) {
        tokens.reserve(length);
        return ForEachCharacter(text,
                                [&](absl::string_view character) { tokens.push_back(token_of[CodePoint(character)]); });
      },
      result->tokens);
  if (!status.ok()) return status;
  return TextDataset(std::move(result), block_size);
}

TextDataset::TextDataset(std::shared_ptr<const Text> text, int64_t block_size)
    : text_(std::move(text)), block_size_(block_size) {}

int64_t TextDataset::block_count() const { return (text_->Length() - 1) / block_size_; }
int64_t TextDataset::vocab_size() const { return static_cast<int64_t>(text_->code_points.size()); }
const std::string& TextDataset::vocabulary() const { return text_->vocabulary; }

TextDataset::Example TextDataset::get(size_t index) const {
  const Example batch = get_batch({index});
  return {batch.tokens.select(0, 0), batch.targets.select(0, 0)};
}

TextDataset::Example TextDataset::get_batch(const std::vector<size_t>& indices) const {
  const int64_t count = static_cast<int64_t>(indices.size());
  Example batch{at::empty({count, block_size_}, at::kLong), at::empty({count, block_size_}, at::kLong)};
  int64_t* tokens = batch.tokens.mutable_data_ptr<int64_t>();
  int64_t* targets = batch.targets.mutable_data_ptr<int64_t>();
  for (const size_t index : indices) {
    const int64_t begin = static_cast<int64_t>(index) * block_size_;
    text_->Copy(begin, block_size_, tokens);
    text_->Copy(begin + 1, block_size_, targets);
    tokens += block_size_;
    targets += block_size_;
  }
  return batch;
}

std::string TextDataset::Decode(const at::Tensor& tokens) const {
  const at::Tensor flat = tokens.to(at::kCPU, at::kLong).contiguous();
  const int64_t* const numbers = flat.const_data_ptr<int64_t>();
  std::string text;
  for (int64_t i = 0; i < flat.numel(); ++i) AppendUtf8(text_->code_points.at(numbers[i]), &text);
  return text;
}

absl::StatusOr<at::Tensor> TextDataset::Encode(absl::string_view text) const {
  std::vector<int64_t> tokens;
  std::string unknown;
  DDPRUN_RETURN_IF_ERROR(ForEachCharacter(text, [&](absl::string_view character) {
    const auto& known = text_->code_points;
    const auto found = std::lower_bound(known.begin(), known.end(), CodePoint(character));
    if (found != known.end() && *found == CodePoint(character)) {
      tokens.push_back(found - known.begin());
    } else if (unknown.empty()) {
      unknown = std::string(character);
    }
  }));
  if (!unknown.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("character \"", absl::Utf8SafeCEscape(unknown), "\" is not in the vocabulary"));
  }
  return at::tensor(tokens, at::kLong);
}

}  // namespace ddprun
