#ifndef DDPRUN_RENDEZVOUS_CORE_LIMITS_H_
#define DDPRUN_RENDEZVOUS_CORE_LIMITS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "absl/time/time.h"

// Bounds on one job, one node and one message (protocol 2.2). The sender shortens texts that are for people to fit;
// anything else that does not fit is refused by the receiver, before it is looked at any further. Tracebacks and lists
// of hosts have their bounds in messages.h.
namespace ddprun::rendezvous {

inline constexpr int32_t kMaxNodes = 100'000;
inline constexpr int32_t kMaxSlots = 4096;
inline constexpr int32_t kMaxRestarts = 1'000'000'000;
inline constexpr int32_t kMaxSignal = 64;

// Rounds that a node may report (protocol 4.6). No server assigns a million rounds more than another server of the same
// job knows of, nor more than a million for each second since 2020, which is the bound at a server that knows nothing.
// A true node's report is always below the bound that a false one had to respect before it.
inline constexpr uint64_t kMaxRoundsAhead = uint64_t{1} << 20;
inline uint64_t MaxReportedRound(absl::Time now) {
  constexpr int64_t kBegin = 1'577'836'800;  // 2020
  return (static_cast<uint64_t>(std::max<int64_t>(absl::ToUnixSeconds(now) - kBegin, 0)) + 1) << 20;
}

// Names that are compared: job, node, host, address, role.
inline constexpr size_t kMaxNameBytes = 256;
inline constexpr size_t kMaxTopologyBytes = 4096;

inline constexpr size_t kMaxProcessNameBytes = 128;

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
