#ifndef DDPRUN_LAUNCHER_STORE_REPLY_H_
#define DDPRUN_LAUNCHER_STORE_REPLY_H_

#include <cstdint>
#include <string>
#include <type_traits>

#include "absl/strings/string_view.h"

namespace ddprun::launcher {

// The few forms that replies of the store protocol are made of. A reply has neither length nor opcode: the
// client knows what it asked. The same forms serve to build requests. Pure functions; `out` is appended to.

// An integer in its own width: u8, u32, u64 or i64, little-endian (request_parser.cc asserts the host's).
template <typename Integer>
void AppendInteger(Integer number, std::string* out) {
  static_assert(std::is_integral_v<Integer>);
  out->append(reinterpret_cast<const char*>(&number), sizeof number);
}

// A key or a value: u64 length, then the bytes.
inline void AppendString(absl::string_view bytes, std::string* out) {
  AppendInteger<uint64_t>(bytes.size(), out);
  out->append(bytes.data(), bytes.size());
}

// Answers of one byte.
inline constexpr uint8_t kCheckReady = 0;     // CHECK: all keys are there
inline constexpr uint8_t kCheckNotReady = 1;  // CHECK: not all
inline constexpr uint8_t kStopWaiting = 0;    // WAIT and BARRIER: the wait is over
inline constexpr uint8_t kWaitCanceled = 1;   // CANCEL_WAIT
inline constexpr uint8_t kRegistered = 0;     // our registration of a node

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_STORE_REPLY_H_
