#ifndef DDPRUN_RENDEZVOUS_SERVER_STREAM_LIMITS_H_
#define DDPRUN_RENDEZVOUS_SERVER_STREAM_LIMITS_H_

#include <list>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/steady_time.h"

namespace ddprun::rendezvous {

// PURE: limits how many streams a server holds, for which addresses, and for how long without a Join, so that clients
// that open idle streams can neither exhaust it nor keep launchers out. Thread-compatible.
class StreamLimits {
 public:
  struct Limits {
    size_t streams = 100'000;
    size_t streams_per_address = 16'384;               // a host may have a thousand launchers, in tests ten thousand
    size_t waiting = 4096;                             // streams without a Join; a launcher is one for one round trip
    absl::Duration first_message = absl::Seconds(10);  // deadline for the Join
  };
  using Key = const void*;

  explicit StreamLimits(const Limits& limits) : limits_(limits) {}

  // Adds a stream. RESOURCE_EXHAUSTED: there is no room for it; nothing has changed.
  absl::Status Open(Key stream, const std::string& address, SteadyTime now);
  // The stream's first message arrived.
  void Joined(Key stream);
  void Closed(Key stream);

  // Returns the stream that has waited longest if too many wait; it has to be ended. nullptr if none.
  Key TakeSurplus();
  // Returns streams that have exceeded the deadline for their Join; they have to be ended.
  std::vector<Key> TakeOverdue(SteadyTime now);
  // When TakeOverdue will next return a stream.
  SteadyTime NextDeadline() const;

 private:
  struct Waiting {
    Key stream;
    SteadyTime until;
  };
  struct Stream {
    std::string address;
    std::list<Waiting>::iterator place;  // waiting_.end() if it is not waiting
  };

  const Limits limits_;
  absl::flat_hash_map<Key, Stream> streams_;
  absl::flat_hash_map<std::string, size_t> of_address_;
  std::list<Waiting> waiting_;  // longest waiting first
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_SERVER_STREAM_LIMITS_H_
