#ifndef DDPRUN_LAUNCHER_STORE_REPLY_H_
#define DDPRUN_LAUNCHER_STORE_REPLY_H_

#include <cstdint>
#include <string>
#include <type_traits>

#include "absl/strings/string_view.h"

namespace ddprun::launcher {

// Elements of replies in the store protocol. A reply has neither length nor opcode: the client knows which request it
// sent. Requests are built from the same elements. Pure functions that append to `out`.

// An integer of its own width: u8, u32, u64 or i64, little-endian (request_parser.cc asserts the host's byte order).
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

// One-byte replies.
inline constexpr uint8_t kCheckReady = 0;     // CHECK: all keys are present
inline constexpr uint8_t kCheckNotReady = 1;  // CHECK: some key is missing
inline constexpr uint8_t kStopWaiting = 0;    // WAIT and BARRIER: the wait has ended
inline constexpr uint8_t kWaitCanceled = 1;   // CANCEL_WAIT
inline constexpr uint8_t kRegistered = 0;     // kRegisterNode: the node is registered

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_STORE_REPLY_H_
