#ifndef DDPRUN_RENDEZVOUS_CLIENT_STREAM_END_H_
#define DDPRUN_RENDEZVOUS_CLIENT_STREAM_END_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "rendezvous/client/client.h"

namespace ddprun::rendezvous {

// How far a stream came before it ended.
enum class StreamProgress {
  kNone,       // nothing that a rendezvous server would say came back
  kTimedOut,   // the same, and that for as long as we wait for it
  kFollower,   // a server that does not lead said so
  kOpen,       // it was the stream of a rendezvous server
  kAbandoned,  // it was, and the launcher gave it up
};

// What a server says that is one of several and does not lead (protocol 4.8).
struct FollowerAnswer {
  std::string leader;  // HOST:PORT; empty: nobody leads, or that is not known
  int64_t epoch = 0;   // of the latest leader at a moment after the question; 0: not known
};

// Whether the server means the launcher to stay away (INVALID_ARGUMENT, FAILED_PRECONDITION, ABORTED, UNAUTHENTICATED,
// PERMISSION_DENIED).
bool IsRefusal(const absl::Status& status);

// Whether an attempt to connect over TLS ended because of TLS, as far as gRPC tells: somebody was reached, and no
// session came of it.
bool IsTlsFailure(StreamProgress progress, const absl::Status& status);
// "TLS handshake failed: ..."
std::string DescribeTlsFailure(const absl::Status& status);

// What to tell the launcher of a stream to `address` (a name or an address) that ended so; `status` is what gRPC or the
// server said. If nothing was reached, only what was tried and what happened: "10.0.0.5: connection refused".
// Thread-safe.
Disconnected DescribeEnd(absl::string_view address, StreamProgress progress, const absl::Status& status);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CLIENT_STREAM_END_H_
