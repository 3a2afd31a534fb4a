#include "worker_runtime/safetensors/seal.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "worker_runtime/safetensors/checksum.h"

namespace ddprun {
namespace {

constexpr char kTensorKey[] = "ddprun.tensor_xxh3";
constexpr char kHeaderKey[] = "ddprun.header_xxh3";
// The field as it appears in the text. A string inside the JSON can't contain it, as its quotation marks are escaped.
constexpr char kHeaderField[] = "\"ddprun.header_xxh3\":\"";

std::string Zeros() { return std::string(kChecksumTextBytes, '0'); }

absl::Status Damaged(absl::string_view file, absl::string_view what) {
  return absl::DataLossError(absl::StrCat(file, " is damaged: ", what));
}

}  // namespace

std::string SealHeader(SafetensorsHeader header, absl::Span<const uint64_t> tensor_checksums) {
  std::string all;
  for (const uint64_t checksum : tensor_checksums) absl::StrAppend(&all, ChecksumText(checksum));
  header.metadata[kTensorKey] = all;
  header.metadata[kHeaderKey] = Zeros();
  std::string text = SafetensorsHeaderText(header);
  const size_t place = text.find(kHeaderField) + sizeof(kHeaderField) - 1;
  text.replace(place, kChecksumTextBytes, ChecksumText(Checksum(text)));
  return text;
}

absl::StatusOr<std::optional<Seal>> ReadSeal(absl::string_view file, absl::string_view text,
                                             const SafetensorsHeader& header) {
  const auto stated = header.metadata.find(kHeaderKey);
  if (stated == header.metadata.end()) {
    // A flipped bit in the key must not make a file of this library pass for another program's.
    for (const auto& [key, value] : header.metadata) {
      if (absl::StartsWith(key, "ddprun.")) return Damaged(file, "its header has no checksum");
    }
    return std::optional<Seal>();
  }
  const size_t field = text.find(kHeaderField);
  if (field == absl::string_view::npos) return Damaged(file, "its header was written by another program");
  std::string zeroed(text);
  const size_t place = field + sizeof(kHeaderField) - 1;
  if (place + kChecksumTextBytes > zeroed.size()) return Damaged(file, "its header checksum is truncated");
  zeroed.replace(place, kChecksumTextBytes, Zeros());
  if (stated->second != ChecksumText(Checksum(zeroed))) return Damaged(file, "header checksum mismatch");

  const auto all = header.metadata.find(kTensorKey);
  if (all == header.metadata.end() || all->second.size() != header.tensors.size() * kChecksumTextBytes) {
    return Damaged(file, "it does not have one checksum per tensor");
  }
  Seal seal;
  for (size_t i = 0; i < header.tensors.size(); ++i) {
    const absl::string_view digits = absl::string_view(all->second).substr(i * kChecksumTextBytes, kChecksumTextBytes);
    const std::optional<uint64_t> checksum = ChecksumFromText(digits);
    if (!checksum) return Damaged(file, "a tensor checksum is not a number");
    seal.tensor_checksums.push_back(*checksum);
  }
  return seal;
}

}  // namespace ddprun
