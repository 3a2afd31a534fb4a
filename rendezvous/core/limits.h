#ifndef DDPRUN_RENDEZVOUS_CORE_LIMITS_H_
#define DDPRUN_RENDEZVOUS_CORE_LIMITS_H_

#include <cstddef>
#include <cstdint>

#include "absl/time/time.h"

// What one job, one node and one message may hold (protocol 2.2). The sender shortens texts that are for people to fit;
// anything else that does not fit is refused by the receiver, before it is looked at any further. Tracebacks and lists
// of hosts have their bounds in messages.h.
namespace ddprun::rendezvous {

inline constexpr int32_t kMaxNodes = 100'000;
inline constexpr int32_t kMaxSlots = 4096;
inline constexpr int32_t kMaxRestarts = 1'000'000'000;
inline constexpr uint64_t kMaxRound = uint64_t{1} << 62;  // so that there always is a next one

// Names that are compared: job, node, host, address, role.
inline constexpr size_t kMaxNameBytes = 256;
inline constexpr size_t kMaxTopologyBytes = 4096;

inline constexpr int kMaxCapabilities = 64;
inline constexpr size_t kMaxCapabilityBytes = 64;

inline constexpr size_t kMinSecretBytes = 16;
inline constexpr size_t kMaxSecretBytes = 64;

// Texts for people: reasons, messages, paths.
inline constexpr size_t kMaxTextBytes = 4096;

// Durations are at most this, or infinite.
inline constexpr absl::Duration kMaxDuration = absl::Hours(24 * 3660);

// A whole message, serialised. The largest that fits the bounds above is about 64 KiB.
inline constexpr size_t kMaxMessageBytes = 128 * 1024;

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_LIMITS_H_
