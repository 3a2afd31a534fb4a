#include "worker_runtime/extras/data/token_file.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace ddprun {
namespace {

static_assert(std::endian::native == std::endian::little, "tokens are read in the file's byte order");

absl::Status Invalid(const std::string& path, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", what));
}

}  // namespace

struct TokenFile::Mapping {
  ~Mapping() { munmap(data, bytes); }

  std::string path;
  void* data = nullptr;
  size_t bytes = 0;
  int64_t tokens = 0;
};

TokenFile::TokenFile(std::shared_ptr<const Mapping> file, const TokenFileOptions& options)
    : file_(std::move(file)), options_(options) {}

absl::StatusOr<TokenFile> TokenFile::Open(const std::string& path, const TokenFileOptions& options) {
  if (options.dtype != at::kUInt16 && options.dtype != at::kUInt32) {
    return Invalid(path, absl::StrCat("dtype must be kUInt16 or kUInt32, got ", c10::toString(options.dtype)));
  }
  if (options.sequence_length < 1) {
    return Invalid(path, absl::StrCat("sequence_length must be at least 1, got ", options.sequence_length));
  }
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return absl::ErrnoToStatus(errno, absl::StrCat(path, ": can't open"));
  const auto close_it = absl::MakeCleanup([descriptor] { close(descriptor); });
  struct stat file = {};
  if (fstat(descriptor, &file) != 0) return absl::ErrnoToStatus(errno, absl::StrCat(path, ": can't stat"));
  if (!S_ISREG(file.st_mode)) return Invalid(path, "is not a regular file");
  const auto bytes = static_cast<size_t>(file.st_size);
  const size_t bytes_per_token = c10::elementSize(options.dtype);
  if (bytes == 0) return Invalid(path, "is empty");
  if (bytes % bytes_per_token != 0) {
    return Invalid(path, absl::StrCat("has ", bytes, " bytes, which is not a multiple of the ", bytes_per_token,
                                      " bytes of a token: the file is truncated or has another dtype"));
  }
  const auto tokens = static_cast<int64_t>(bytes / bytes_per_token);
  if (tokens <= options.sequence_length) {
    return Invalid(path, absl::StrCat("has ", tokens, " tokens, fewer than the ", options.sequence_length + 1,
                                      " of one sequence and the token after it"));
  }
  void* const data = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, descriptor, 0);
  if (data == MAP_FAILED) return absl::ErrnoToStatus(errno, absl::StrCat(path, ": can't map into memory"));
  auto mapping = std::make_shared<Mapping>();
  mapping->path = path;
  mapping->data = data;
  mapping->bytes = bytes;
  mapping->tokens = tokens;
  return TokenFile(std::move(mapping), options);
}

std::optional<size_t> TokenFile::size() const {
  return static_cast<size_t>((file_->tokens - 1) / options_.sequence_length);
}

int64_t TokenFile::tokens() const { return file_->tokens; }

template <typename Token>
void TokenFile::Read(size_t index, int64_t* to) const {
  TORCH_CHECK_INDEX(index < *size(), file_->path, ": there is no sequence ", index, "; it has ", *size());
  const int64_t first = static_cast<int64_t>(index) * options_.sequence_length;
  const Token* const from = static_cast<const Token*>(file_->data) + first;
  Token largest = 0;
  for (int64_t i = 0; i <= options_.sequence_length; ++i) {
    to[i] = from[i];
    largest = std::max(largest, from[i]);
  }
  if (options_.vocab_size == 0 || largest < options_.vocab_size) return;
  int64_t bad = 0;
  while (to[bad] < options_.vocab_size) ++bad;
  TORCH_CHECK_VALUE(false, file_->path, ": token ", first + bad, " is ", to[bad],
                    ", but must be less than vocab_size, ", options_.vocab_size,
                    ": the file is from another tokenizer or has another dtype");
}

torch::data::Example<> TokenFile::get_batch(const std::vector<size_t>& indices) const {
  const int64_t length = options_.sequence_length;
  const at::Tensor rows = at::empty({static_cast<int64_t>(indices.size()), length + 1}, at::kLong);
  int64_t* to = rows.mutable_data_ptr<int64_t>();
  for (const size_t index : indices) {
    if (options_.dtype == at::kUInt16) {
      Read<uint16_t>(index, to);
    } else {
      Read<uint32_t>(index, to);
    }
    to += length + 1;
  }
  return {rows.narrow(1, 0, length), rows.narrow(1, 1, length)};
}

torch::data::Example<> TokenFile::get(size_t index) const {
  const torch::data::Example<> batch = get_batch({index});
  return {batch.data[0], batch.target[0]};
}

}  // namespace ddprun
