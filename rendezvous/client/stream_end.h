#ifndef DDPRUN_RENDEZVOUS_CLIENT_STREAM_END_H_
#define DDPRUN_RENDEZVOUS_CLIENT_STREAM_END_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "rendezvous/client/client.h"

namespace ddprun::rendezvous {

// How far a stream got before it ended.
enum class StreamProgress {
  kNone,       // no response of a rendezvous server was received
  kTimedOut,   // no response was received before the timeout
  kFollower,   // a server that does not lead answered
  kOpen,       // a rendezvous server answered
  kAbandoned,  // a rendezvous server answered, and the launcher abandoned the stream
};

// Answer of one of several servers that does not lead (protocol 4.8).
struct FollowerAnswer {
  std::string leader;  // HOST:PORT; empty: no leader, or unknown
  int64_t epoch = 0;   // epoch of the latest leader at some time after the query; 0: unknown
};

// True if the server refuses this launcher (INVALID_ARGUMENT, FAILED_PRECONDITION, ABORTED, UNAUTHENTICATED,
// PERMISSION_DENIED).
bool IsRefusal(const absl::Status& status);

// True if a TLS connection attempt failed because of TLS, as far as gRPC reveals: a peer was reached but no session
// resulted.
bool IsTlsFailure(StreamProgress progress, const absl::Status& status);
// "TLS handshake failed: ..."
std::string DescribeTlsFailure(const absl::Status& status);

// Describes for the launcher the end of a stream to `address` (a name or an address); `status` comes from gRPC or the
// server. If nothing was reached, the reason names only the address and the error: "10.0.0.5: connection refused".
// Thread-safe.
Disconnected DescribeEnd(absl::string_view address, StreamProgress progress, const absl::Status& status);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CLIENT_STREAM_END_H_
