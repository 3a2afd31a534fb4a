#ifndef DDPRUN_LAUNCHER_HANG_UNINTERRUPTIBLE_WATCH_H_
#define DDPRUN_LAUNCHER_HANG_UNINTERRUPTIBLE_WATCH_H_

#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "base/steady_time.h"

namespace ddprun::launcher {

// PURE: notices workers that are in uninterruptible sleep (state D of proc(5)) at every check for as long as a limit: a
// device, its driver or a file system does not answer. The shell reads their states at NextDeadline. Thread-compatible.
class UninterruptibleWatch {
 public:
  // Zero: never checks.
  explicit UninterruptibleWatch(absl::Duration limit) : limit_(limit) {}

  absl::Duration limit() const { return limit_; }
  void BeginRound(SteadyTime now);
  void EndRound() { due_.Clear(); }

  // `asleep`: the present state of each worker, by local rank. Returns the ranks that have reached the limit.
  std::vector<int32_t> Check(const std::vector<bool>& asleep, SteadyTime now);
  SteadyTime NextDeadline() const { return due_.at(); }

 private:
  absl::Duration Interval() const;

  const absl::Duration limit_;
  std::vector<SteadyTime> since_;  // first check of the present row; infinite: not asleep
  Timer due_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_HANG_UNINTERRUPTIBLE_WATCH_H_
