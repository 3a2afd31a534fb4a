#ifndef DDPRUN_RENDEZVOUS_WIRE_LIMITS_H_
#define DDPRUN_RENDEZVOUS_WIRE_LIMITS_H_

#include <cstddef>
#include <cstdint>

#include "absl/time/time.h"
#include "rendezvous/core/messages.h"

// What one message may hold. The sender shortens texts that are for people to fit; anything else that does not fit
// is refused by the receiver, before it is looked at any further.
namespace ddprun::rendezvous {

// A whole message, serialised. The largest that fits the bounds below is about 64 KiB.
inline constexpr size_t kMaxMessageBytes = 128 * 1024;

// Names that are compared: job, node, host, address, role.
inline constexpr size_t kMaxNameBytes = 256;
inline constexpr size_t kMaxTopologyBytes = 1024;

// Texts for people: reasons, messages, paths. Tracebacks have kMaxTracebackBytes (messages.h).
inline constexpr size_t kMaxTextBytes = 4096;

inline constexpr int32_t kMaxNodes = 1'000'000;
inline constexpr int32_t kMaxSlots = 65'536;
inline constexpr int32_t kMaxRestarts = 1'000'000'000;

// Durations are at most this, or infinite.
inline constexpr absl::Duration kMaxDuration = absl::Hours(24 * 3660);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_WIRE_LIMITS_H_
