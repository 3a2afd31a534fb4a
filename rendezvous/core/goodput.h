#ifndef DDPRUN_RENDEZVOUS_CORE_GOODPUT_H_
#define DDPRUN_RENDEZVOUS_CORE_GOODPUT_H_

#include <cstdint>
#include <optional>

#include "absl/time/time.h"
#include "rendezvous/base/steady_time.h"
#include "rendezvous/core/event.h"
#include "rendezvous/core/job_view.h"

namespace ddprun::rendezvous {

// PURE: divides a job's time by its events and the steps that its ranks report. A job whose workers report no steps
// starts for ever. Thread-compatible. `now` never goes back.
class Goodput {
 public:
  explicit Goodput(SteadyTime created) : since_(created) {}

  // Other kinds than those of the job and its rounds mean nothing here.
  void OnEvent(Event::Kind kind, SteadyTime now);
  // A rank of the running round is in this step.
  void OnStep(int64_t step, SteadyTime now);

  GoodputView At(SteadyTime now) const;

 private:
  enum class Phase { kWaiting, kStarting, kTraining, kReForming, kEnded };

  void Enter(Phase phase, SteadyTime now);
  absl::Duration* TimeOf(GoodputView* view) const;

  Phase phase_ = Phase::kWaiting;
  SteadyTime since_;  // in this phase
  GoodputView past_;
  bool trained_ = false;
  int64_t highest_ = -1;              // of all rounds
  std::optional<int64_t> last_step_;  // the highest of this round, and when it was reported
  SteadyTime last_at_;
  absl::Duration step_time_;  // smoothed; zero: not known
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_GOODPUT_H_
