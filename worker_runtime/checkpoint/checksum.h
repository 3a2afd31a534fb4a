#ifndef DDPRUN_WORKER_RUNTIME_CHECKPOINT_CHECKSUM_H_
#define DDPRUN_WORKER_RUNTIME_CHECKPOINT_CHECKSUM_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

// XXH3 with 64 bits (github.com/Cyan4973/xxHash): finds damage, is no protection against somebody who wants to deceive.
// Runs at the speed of memory. Thread-compatible.
namespace ddprun {

uint64_t Checksum(absl::string_view bytes);

// The same of bytes that come in pieces.
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

#endif  // DDPRUN_WORKER_RUNTIME_CHECKPOINT_CHECKSUM_H_
