#ifndef DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_OPERATION_WATCH_H_
#define DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_OPERATION_WATCH_H_

#include <cstdint>
#include <optional>

#include "absl/time/time.h"
#include "base/steady_time.h"

namespace ddprun {

// Decides when operations that the backend does not end by itself must be ended. Pure; thread-compatible.
//
// Gloo tells an operation of a connection that breaks, unless a message is half sent or half received at that moment:
// then the operation waits until its timeout. A lost connection alone proves nothing, because a peer that needs nothing
// more may leave in order while this rank still hears from others.
class OperationWatch {
 public:
  // How long an operation has run before anybody looks, and the time from one look to the next.
  static constexpr absl::Duration kBetweenLooks = absl::Milliseconds(100);
  // How long operations may take to end by themselves after their connections were broken on purpose. Some are about
  // to end, and then their tensors are not written any more.
  static constexpr absl::Duration kGrace = absl::Milliseconds(50);
  // How long no byte may move on the connections that are left after one was lost.
  static constexpr absl::Duration kSilence = absl::Seconds(1);

  struct Sight {
    int lost = 0;             // connections that are closed
    int open = 0;             // connections that are not
    uint64_t bytes = 0;       // that have moved on those, in both directions
    bool one_failed = false;  // an operation has ended with an error since the group was made
  };

  // The connections were broken on purpose. Only the first call counts.
  void Interrupt(SteadyTime now);

  // Nothing is in flight: what was seen before does not matter any more.
  void Rest() { silent_since_.reset(); }

  // Whether the operations in flight must be ended.
  bool Step(const Sight& sight, SteadyTime now);

  // When to look again while an operation is in flight.
  SteadyTime NextLook(SteadyTime now) const;

 private:
  std::optional<SteadyTime> interrupted_;
  std::optional<SteadyTime> silent_since_;
  uint64_t bytes_ = 0;
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_OPERATION_WATCH_H_
