#ifndef DDPRUN_RENDEZVOUS_CORE_GOODPUT_H_
#define DDPRUN_RENDEZVOUS_CORE_GOODPUT_H_

#include <cstdint>
#include <optional>

#include "absl/time/time.h"
#include "base/steady_time.h"
#include "rendezvous/core/event.h"
#include "rendezvous/core/job_record.h"
#include "rendezvous/core/job_view.h"

namespace ddprun::rendezvous {

// PURE: divides a job's time by its events and the steps that its ranks report. A job whose workers report no steps
// starts for ever. Thread-compatible. `now` never goes back.
class Goodput {
 public:
  explicit Goodput(SteadyTime created) : since_(created) {}
  // Resumes the goodput of a job at `began`, when this server began. The time since the record is attributed when a
  // rank reports a step.
  Goodput(const GoodputRecord& record, SteadyTime began);

  // Other kinds than those of the job and its rounds mean nothing here.
  void OnEvent(Event::Kind kind, SteadyTime now);
  // A rank of the running round is in this step.
  void OnStep(int64_t step, SteadyTime now);

  GoodputView At(SteadyTime now) const;
  GoodputRecord Record(SteadyTime now) const;

 private:
  using Phase = GoodputPhase;

  void Enter(Phase phase, SteadyTime now);
  // Workers have come to `step`: whether it took what was counted as unheard.
  void TakeUnheard(int64_t step);
  static absl::Duration* TimeOf(Phase phase, GoodputView* view);

  Phase phase_ = Phase::kWaiting;
  SteadyTime since_;  // in this phase
  GoodputView past_;
  // The time from the record until a step is reported, which counts in the phase of the record.
  bool resumed_ = false;  // it lasts
  absl::Duration unheard_;
  Phase unheard_phase_ = Phase::kWaiting;
  bool trained_ = false;
  int64_t highest_ = -1;              // of all rounds
  std::optional<int64_t> last_step_;  // the highest of this round, and when it was reported
  SteadyTime last_at_;
  absl::Duration step_time_;  // smoothed; zero: not known
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_GOODPUT_H_
