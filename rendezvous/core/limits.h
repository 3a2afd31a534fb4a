#ifndef DDPRUN_RENDEZVOUS_CORE_LIMITS_H_
#define DDPRUN_RENDEZVOUS_CORE_LIMITS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "absl/time/time.h"

// Bounds on the values of one job, one node and one message (protocol 2.2). The sender truncates displayed texts that
// are too long. The receiver refuses a message with any other value out of bounds before it acts on the message. Bounds
// on tracebacks and lists of hosts are in messages.h.
namespace ddprun::rendezvous {

inline constexpr int32_t kMaxNodes = 100'000;
inline constexpr int32_t kMaxSlots = 4096;
inline constexpr int32_t kMaxRestarts = 1'000'000'000;
inline constexpr int32_t kMaxSignal = 64;

// Bounds on the round number that a Join may report (protocol 4.6), so that no client can use up the round numbers of a
// job. If the server knows a round of the job: at most kMaxRoundsAhead above the highest. Otherwise: at most
// MaxReportedRound(now), 2^20 for each second since 2020, which grows faster than any job assigns rounds; so genuine
// reports stay in bounds, whatever a malicious client reported to an earlier server.
inline constexpr uint64_t kMaxRoundsAhead = uint64_t{1} << 20;
inline uint64_t MaxReportedRound(absl::Time now) {
  constexpr int64_t kBegin = 1'577'836'800;  // begin of 2020, in Unix seconds
  return (static_cast<uint64_t>(std::max<int64_t>(absl::ToUnixSeconds(now) - kBegin, 0)) + 1) << 20;
}

// Length of job ids, node ids, host names, addresses and roles, which the server compares.
inline constexpr size_t kMaxNameBytes = 256;
inline constexpr size_t kMaxTopologyBytes = 4096;

inline constexpr size_t kMaxProcessNameBytes = 128;

inline constexpr size_t kMinSecretBytes = 16;
inline constexpr size_t kMaxSecretBytes = 64;

// Length of texts that are only displayed: reasons, messages, paths.
inline constexpr size_t kMaxTextBytes = 4096;

// Longest finite duration in a message; infinite ones are allowed as well.
inline constexpr absl::Duration kMaxDuration = absl::Hours(24 * 3660);

// Size of a serialized message. A message within the bounds above has at most about 64 KiB.
inline constexpr size_t kMaxMessageBytes = 128 * 1024;

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_LIMITS_H_
