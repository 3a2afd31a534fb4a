#ifndef DDPRUN_WORKER_RUNTIME_SAFETENSORS_SEAL_H_
#define DDPRUN_WORKER_RUNTIME_SAFETENSORS_SEAL_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "worker_runtime/safetensors/safetensors_header.h"

// Checksums inside a safetensors file, in metadata that other readers ignore. PURE.
//
//   ddprun.tensor_xxh3   one checksum per tensor, sixteen digits each, in the order of the tensors' bytes
//   ddprun.header_xxh3   checksum of the JSON text with sixteen zeros in place of this value
namespace ddprun {

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

#endif  // DDPRUN_WORKER_RUNTIME_SAFETENSORS_SEAL_H_
