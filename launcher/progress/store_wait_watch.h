#ifndef DDPRUN_LAUNCHER_PROGRESS_STORE_WAIT_WATCH_H_
#define DDPRUN_LAUNCHER_PROGRESS_STORE_WAIT_WATCH_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/steady_time.h"
#include "base/timer.h"

namespace ddprun::launcher {

// A client that waits for a key of the round's store.
struct StoreWait {
  uint64_t number = 0;         // of this wait: no other one has it
  std::optional<int> rank;     // its own, where known
  std::string key;             // a key that it waits for
  std::optional<int> on_rank;  // the rank that is to set it, where known
};

// PURE: says who has waited long for a key of the store, at the start or later (a barrier that a rank has not come to),
// and which ranks have not asked for it. Waits are looked at every kInterval while there are any: a client says nothing
// while it waits. Reported after kLong, and then ever more rarely. Thread-compatible.
class StoreWaitWatch {
 public:
  static constexpr absl::Duration kInterval = absl::Seconds(15);
  static constexpr absl::Duration kLong = absl::Seconds(30);

  // A round begins, of this many ranks.
  void StartRound(int world_size);
  void EndRound() { *this = StoreWaitWatch(); }

  // Clients wait now.
  void OnWaits(SteadyTime now);

  SteadyTime NextDeadline() const { return look_.at(); }
  // `waits`: all that there are now. Returns what is to be said, one line; empty: nothing.
  std::string OnDeadline(const std::vector<StoreWait>& waits, SteadyTime now);

 private:
  int world_size_ = 0;
  std::map<uint64_t, SteadyTime> since_;  // when each wait was first seen
  Timer look_;
  absl::Duration pause_ = absl::Minutes(1);  // after the next report
  SteadyTime next_report_ = SteadyTime::InfinitePast();
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROGRESS_STORE_WAIT_WATCH_H_
