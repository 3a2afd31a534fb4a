#ifndef DDPRUN_WORKER_RUNTIME_EXTRAS_DATA_TOKEN_FILE_H_
#define DDPRUN_WORKER_RUNTIME_EXTRAS_DATA_TOKEN_FILE_H_

#include <c10/core/ScalarType.h>
#include <torch/data/example.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace ddprun {

struct TokenFileOptions {
  int64_t sequence_length = 1024;
  // Type of the tokens in the file: at::kUInt16 or at::kUInt32.
  c10::ScalarType dtype = c10::ScalarType::UInt16;
  // Tokens must be less than this, which is checked when they are read. 0: not checked.
  int64_t vocab_size = 0;
};

// A tokenized text as a dataset of sequences for next-token prediction. The file holds nothing but tokens, little
// endian, like the .bin files of nanoGPT, which numpy.memmap reads in Python. The file is mapped into memory: opening
// it reads nothing, ranks of one host share the pages, and the kernel can drop them, so the file may be larger than
// memory.
//
//   absl::StatusOr<ddprun::TokenFile> tokens = ddprun::TokenFile::Open("train.bin", {.sequence_length = 256});
//   auto sampler = ddprun::DistributedSampler::Create(*tokens->size(), {.num_replicas = ranks, .rank = rank});
//   auto loader = torch::data::make_data_loader(*tokens, *sampler, batch_size);
//   for (auto& batch : *loader) Loss(model->forward(batch.data), batch.target);
//
// Sequences do not overlap; sequence i has the tokens from i * sequence_length on. Targets are the tokens that follow,
// so the file's last token is only a target. An incomplete sequence at the end is left out.
//
// Copies share the mapping. Thread-safe. The file must not be truncated while it is open: reading beyond its new end
// ends the process with SIGBUS.
class TokenFile {
 public:
  // Errors name the file. NotFound, PermissionDenied and other errors of the system: it can't be opened or mapped.
  // InvalidArgument: it is empty, its size is not a multiple of the token's, it is shorter than one sequence and a
  // target, or an option is invalid.
  static absl::StatusOr<TokenFile> Open(const std::string& path, const TokenFileOptions& options);

  // Number of sequences.
  std::optional<size_t> size() const;
  // Number of tokens in the file.
  int64_t tokens() const;

  // int64 data and target: [sequence_length], or [number of indices, sequence_length]. Both are views of one tensor.
  // Throws, like LibTorch's datasets: c10::IndexError: an index is not less than size(); c10::ValueError: a token is
  // not less than vocab_size; the message has the file and the token's position.
  torch::data::Example<> get(size_t index) const;
  torch::data::Example<> get_batch(const std::vector<size_t>& indices) const;

  // Required by torch::data.
  using BatchType = torch::data::Example<>;
  using BatchRequestType = std::vector<size_t>;
  static constexpr bool is_stateful = false;

 private:
  struct Mapping;
  TokenFile(std::shared_ptr<const Mapping> file, const TokenFileOptions& options);

  // Copies sequence `index` and the token after it.
  template <typename Token>
  void Read(size_t index, int64_t* to) const;

  std::shared_ptr<const Mapping> file_;
  TokenFileOptions options_;
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_EXTRAS_DATA_TOKEN_FILE_H_
