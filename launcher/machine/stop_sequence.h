#ifndef DDPRUN_LAUNCHER_MACHINE_STOP_SEQUENCE_H_
#define DDPRUN_LAUNCHER_MACHINE_STOP_SEQUENCE_H_

#include <algorithm>

#include "absl/time/time.h"
#include "base/steady_time.h"

namespace ddprun::launcher {

// PURE: the deadlines of workers that are stopping. After the grace they get SIGKILL; workers that are still alive
// kAbandonAfter later hang in the kernel and are abandoned. `limit`: time until which workers may run at all, which
// bounds the grace. Thread-compatible value type.
class StopSequence {
 public:
  enum class Step { kNone, kKill, kAbandon };
  static constexpr absl::Duration kAbandonAfter = absl::Seconds(30);

  // Workers were asked to end or to suspend within `grace`.
  void Start(absl::Duration grace, SteadyTime now) {
    kill_.Set(now + grace);
    abandon_.Clear();
  }

  // Workers were sent SIGKILL. Others may still have their grace.
  void OnKilled(SteadyTime now) {
    if (!kill_.running()) abandon_.Set(now + kAbandonAfter);
  }

  // Makes the next step due now.
  void Hurry(SteadyTime now) {
    if (kill_.running()) kill_.Set(now);
    if (abandon_.running()) abandon_.Set(now);
  }

  // All workers have ended or are suspended.
  void Clear() { *this = StopSequence(); }

  // Returns the step that is due, which is then over.
  Step Take(SteadyTime limit, SteadyTime now) {
    if (KillAt(limit) <= now) {
      kill_.Clear();
      abandon_.Set(now + kAbandonAfter);
      return Step::kKill;
    }
    return abandon_.Take(now) ? Step::kAbandon : Step::kNone;
  }

  // When SIGKILL is sent; infinite if no worker has a grace.
  SteadyTime KillAt(SteadyTime limit) const { return kill_.running() && limit < kill_.at() ? limit : kill_.at(); }
  // When Take will next return a step.
  SteadyTime NextDeadline(SteadyTime limit) const { return std::min(KillAt(limit), abandon_.at()); }

 private:
  Timer kill_;
  Timer abandon_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_MACHINE_STOP_SEQUENCE_H_
