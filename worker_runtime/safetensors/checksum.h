#ifndef DDPRUN_WORKER_RUNTIME_SAFETENSORS_CHECKSUM_H_
#define DDPRUN_WORKER_RUNTIME_SAFETENSORS_CHECKSUM_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

// 64-bit XXH3 (github.com/Cyan4973/xxHash): detects accidental damage, not deliberate modification. Runs at memory
// speed. Thread-compatible.
namespace ddprun {

uint64_t Checksum(absl::string_view bytes);

// Checksum of bytes that arrive in pieces.
class ChecksumStream {
 public:
  ChecksumStream();
  ~ChecksumStream();
  ChecksumStream(const ChecksumStream&) = delete;
  ChecksumStream& operator=(const ChecksumStream&) = delete;

  void Add(absl::string_view bytes);
  uint64_t Value() const;

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

inline constexpr size_t kChecksumTextBytes = 16;
// Sixteen lower-case hexadecimal digits.
std::string ChecksumText(uint64_t checksum);
std::optional<uint64_t> ChecksumFromText(absl::string_view text);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_SAFETENSORS_CHECKSUM_H_
