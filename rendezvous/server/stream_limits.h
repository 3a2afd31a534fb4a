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

// PURE: how many streams a server holds, for whom, and for how long without a Join: so that whoever opens streams and
// says nothing neither grows it nor keeps launchers out. Thread-compatible.
class StreamLimits {
 public:
  struct Limits {
    size_t streams = 100'000;
    size_t streams_per_address = 16'384;  // a thousand launchers on one host are possible, and tests with ten thousand
    size_t waiting = 4096;                // without a Join; a launcher is that for one round trip
    absl::Duration first_message = absl::Seconds(10);  // by then a Join must have come
  };
  using Key = const void*;

  explicit StreamLimits(const Limits& limits) : limits_(limits) {}

  // A stream begins. RESOURCE_EXHAUSTED: there is no room for it; nothing has changed.
  absl::Status Open(Key stream, const std::string& address, SteadyTime now);
  // Its first message came.
  void Joined(Key stream);
  void Closed(Key stream);

  // The stream that has waited longest, if more wait than may: it has to end. nullptr: none.
  Key TakeSurplus();
  // Streams that have waited for too long, and have to end.
  std::vector<Key> TakeOverdue(SteadyTime now);
  // When there will be such.
  SteadyTime NextDeadline() const;

 private:
  struct Waiting {
    Key stream;
    SteadyTime until;
  };
  struct Stream {
    std::string address;
    std::list<Waiting>::iterator place;  // waiting_.end(): it does not wait
  };

  const Limits limits_;
  absl::flat_hash_map<Key, Stream> streams_;
  absl::flat_hash_map<std::string, size_t> of_address_;
  std::list<Waiting> waiting_;  // the longest waiting first
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_SERVER_STREAM_LIMITS_H_
