#ifndef DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_OPERATION_WATCH_H_
#define DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_OPERATION_WATCH_H_

#include <cstdint>
#include <optional>

#include "absl/time/time.h"
#include "base/steady_time.h"

namespace ddprun {

// Decides when operations that the backend does not end must be ended. Pure; thread-compatible.
//
// Gloo notifies an operation of a broken connection, unless a message is half sent or half received at that moment:
// then the operation waits until its timeout. A lost connection alone proves nothing, because a peer that has finished
// may leave in good order while this rank still receives from others.
class OperationWatch {
 public:
  // How long an operation runs before the first look at the connections, and the time between looks.
  static constexpr absl::Duration kBetweenLooks = absl::Milliseconds(100);
  // How long operations may take to end after their connections were broken on purpose. An operation that ends in this
  // time no longer writes to its tensors.
  static constexpr absl::Duration kGrace = absl::Milliseconds(50);
  // How long no byte may move on the remaining connections after one was lost.
  static constexpr absl::Duration kSilence = absl::Seconds(1);

  struct Sight {
    int lost = 0;             // closed connections
    int open = 0;             // open connections
    uint64_t bytes = 0;       // moved on the open ones, in both directions
    bool one_failed = false;  // an operation has ended with an error since the group was made
  };

  // The connections were broken on purpose. Only the first call counts.
  void Interrupt(SteadyTime now);

  // Resets what was seen, when nothing is in flight.
  void Rest() { silent_since_.reset(); }

  // Returns true if the operations in flight must be ended.
  bool Step(const Sight& sight, SteadyTime now);

  // Returns when to look again while an operation is in flight.
  SteadyTime NextLook(SteadyTime now) const;

 private:
  std::optional<SteadyTime> interrupted_;
  std::optional<SteadyTime> silent_since_;
  uint64_t bytes_ = 0;
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_OPERATION_WATCH_H_
