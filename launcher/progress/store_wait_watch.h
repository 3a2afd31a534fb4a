#ifndef DDPRUN_LAUNCHER_PROGRESS_STORE_WAIT_WATCH_H_
#define DDPRUN_LAUNCHER_PROGRESS_STORE_WAIT_WATCH_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/steady_time.h"

namespace ddprun::launcher {

// A client that waits for a key of the round's store.
struct StoreWait {
  uint64_t number = 0;         // unique id of this wait
  std::optional<int> rank;     // rank of the client; unset: unknown
  std::string key;             // one of the keys it waits for
  std::optional<int> on_rank;  // the rank that sets the key; unset: unknown
};

// PURE: reports clients that have waited long for a key of the store, at the start or later (such as a barrier that
// some rank has not reached), and the ranks that have not requested that key. Clients send nothing while they wait, so
// waits are polled every kInterval while there are any. The first report comes after kLong; repetitions become less and
// less frequent. Thread-compatible.
class StoreWaitWatch {
 public:
  static constexpr absl::Duration kInterval = absl::Seconds(15);
  static constexpr absl::Duration kLong = absl::Seconds(30);

  // Starts a round with this world size.
  void StartRound(int world_size);
  void EndRound() { *this = StoreWaitWatch(); }

  // Starts polling the waits, because there is one.
  void OnWaits(SteadyTime now);

  SteadyTime NextDeadline() const { return look_.at(); }
  // `waits`: all current waits. Returns a line to log; empty: none.
  std::string OnDeadline(const std::vector<StoreWait>& waits, SteadyTime now);

 private:
  int world_size_ = 0;
  std::map<uint64_t, SteadyTime> since_;  // time at which each wait was first seen
  Timer look_;
  absl::Duration pause_ = absl::Minutes(1);  // after the next report; doubles
  SteadyTime next_report_ = SteadyTime::InfinitePast();
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROGRESS_STORE_WAIT_WATCH_H_
