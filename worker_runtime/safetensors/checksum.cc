#include "worker_runtime/safetensors/checksum.h"

#include <xxhash.h>

#include "absl/strings/str_cat.h"

namespace ddprun {

struct ChecksumStream::State {
  XXH3_state_t xxh3;
};

uint64_t Checksum(absl::string_view bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

ChecksumStream::ChecksumStream() : state_(std::make_unique<State>()) { XXH3_64bits_reset(&state_->xxh3); }

ChecksumStream::~ChecksumStream() = default;

void ChecksumStream::Add(absl::string_view bytes) { XXH3_64bits_update(&state_->xxh3, bytes.data(), bytes.size()); }

uint64_t ChecksumStream::Value() const { return XXH3_64bits_digest(&state_->xxh3); }

std::string ChecksumText(uint64_t checksum) { return absl::StrCat(absl::Hex(checksum, absl::kZeroPad16)); }

std::optional<uint64_t> ChecksumFromText(absl::string_view text) {
  if (text.size() != kChecksumTextBytes) return std::nullopt;
  uint64_t value = 0;
  for (const char digit : text) {
    if (digit >= '0' && digit <= '9') {
      value = value << 4 | static_cast<uint64_t>(digit - '0');
    } else if (digit >= 'a' && digit <= 'f') {
      value = value << 4 | static_cast<uint64_t>(digit - 'a' + 10);
    } else {
      return std::nullopt;
    }
  }
  return value;
}

}  // namespace ddprun
