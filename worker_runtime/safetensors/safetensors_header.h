#ifndef DDPRUN_WORKER_RUNTIME_SAFETENSORS_SAFETENSORS_HEADER_H_
#define DDPRUN_WORKER_RUNTIME_SAFETENSORS_SAFETENSORS_HEADER_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

// The header of a safetensors file (github.com/huggingface/safetensors): eight bytes with the length of a JSON text
// (little-endian), that text, then the bytes of the tensors without gaps. PURE: values in, values out.
namespace ddprun {

// Element types, all little-endian. Names in the file are those of SafetensorsDtypeName.
enum class SafetensorsDtype {
  kF64,
  kF32,
  kF16,
  kBF16,
  kI64,
  kI32,
  kI16,
  kI8,
  kU64,
  kU32,
  kU16,
  kU8,
  kBool,
  kC64,
  kF8E4M3,
  kF8E5M2,
  kF8E4M3Fnuz,
  kF8E5M2Fnuz,
  kF8E8M0,
};

absl::string_view SafetensorsDtypeName(SafetensorsDtype dtype);
std::optional<SafetensorsDtype> SafetensorsDtypeFromName(absl::string_view name);
// Bytes of one element.
uint64_t SafetensorsDtypeBytes(SafetensorsDtype dtype);

// One tensor of a file. Row-major, contiguous. A shape without dimensions is a scalar.
struct SafetensorsTensor {
  std::string name;
  SafetensorsDtype dtype = SafetensorsDtype::kF32;
  std::vector<int64_t> shape;
  uint64_t begin = 0;  // bytes, counted from the end of the header
  uint64_t end = 0;

  uint64_t bytes() const { return end - begin; }
};

struct SafetensorsHeader {
  // Tensors in file order; empty tensors at the same position by name.
  std::vector<SafetensorsTensor> tensors;
  // The entries of "__metadata__".
  std::map<std::string, std::string> metadata;
  // Offset of the first tensor's bytes in the file. Set by the reader; the writer chooses it.
  uint64_t data_begin = 0;

  // Bytes of all tensors together.
  uint64_t data_bytes() const { return tensors.empty() ? 0 : tensors.back().end; }
  // Nullptr if there is no tensor of this name.
  const SafetensorsTensor* Find(absl::string_view name) const;
};

// Longer headers are rejected, as in the reference library.
inline constexpr uint64_t kMaxSafetensorsHeaderBytes = 100'000'000;
// Length of the size field before the header.
inline constexpr uint64_t kSafetensorsPrefixBytes = 8;

// Assigns each tensor its position (overwrites `begin` and `end`) and sorts the tensors: larger element types first, so
// that every tensor is aligned, then by name.
// Errors: InvalidArgument names a tensor with a duplicate or reserved name, or a shape that is too large.
absl::StatusOr<SafetensorsHeader> LayOutSafetensors(std::vector<SafetensorsTensor> tensors,
                                                    std::map<std::string, std::string> metadata);

// Alignment of the tensor data in files written here: a page, so that mapped tensors are aligned and the data can be
// written without the page cache.
inline constexpr uint64_t kSafetensorsDataAlignment = 4096;

// The JSON text of a header, padded with spaces so that the data begins at a multiple of kSafetensorsDataAlignment.
std::string SafetensorsHeaderText(const SafetensorsHeader& header);
// The size field for a text of this length.
std::string SafetensorsPrefix(uint64_t text_bytes);

// Returns the length of the JSON text, from the file's first bytes (at least eight, if the file is that long).
// Errors: DataLoss names `file` and the reason: too short, or an invalid length.
absl::StatusOr<uint64_t> SafetensorsTextBytes(absl::string_view file, absl::string_view prefix, uint64_t file_bytes);

// Parses the JSON text of a file of `file_bytes` bytes. For any text, the result is consistent: each tensor lies within
// the file, has the size of its shape and dtype, and tensors neither overlap nor leave gaps.
// Errors: DataLoss names `file`, the tensor and the error.
absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(absl::string_view file, absl::string_view text,
                                                         uint64_t file_bytes);

// ---- the seal: checksums inside a file, in metadata that other readers ignore ----
//
//   ddprun.tensor_xxh3   one checksum per tensor, sixteen digits each, in the order of the tensors' bytes
//   ddprun.header_xxh3   checksum of the JSON text with sixteen zeros in place of this value

// Returns the JSON text of `header` with these checksums of its tensors and its own, as written to the file.
std::string SealHeader(SafetensorsHeader header, absl::Span<const uint64_t> tensor_checksums);

struct Seal {
  std::vector<uint64_t> tensor_checksums;  // one per tensor of the header
};

// Reads the seal of a header that was parsed from `text`. Nullopt: the file has none, because another program wrote it.
// Errors: DataLoss names `file` if the header is damaged.
absl::StatusOr<std::optional<Seal>> ReadSeal(absl::string_view file, absl::string_view text,
                                             const SafetensorsHeader& header);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_SAFETENSORS_SAFETENSORS_HEADER_H_
