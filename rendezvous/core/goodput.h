#ifndef DDPRUN_RENDEZVOUS_CORE_GOODPUT_H_
#define DDPRUN_RENDEZVOUS_CORE_GOODPUT_H_

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/steady_time.h"
#include "proto/rendezvous.pb.h"
#include "proto/state.pb.h"

namespace ddprun::rendezvous {

// PURE: the goodput of one job: how much of its time was spent waiting, starting, training and re-forming, as its
// events and the steps reported by its ranks show. A job whose workers report no steps counts as starting
// until its end. `now` must never decrease. Thread-compatible.
class Goodput {
 public:
  explicit Goodput(SteadyTime created);
  // Resumes from a record at `began`, when this server began. The first reported step decides how the time since the
  // record is counted (TakeUnheard).
  Goodput(v1::GoodputRecord record, SteadyTime began);

  // Reports an event of the job. Events of nodes have no effect.
  void OnEvent(absl::string_view kind, SteadyTime now);
  // Reports that a rank of the running round is in this step.
  void OnStep(int64_t step, SteadyTime now);

  // Returns the totals until `now`.
  v1::Goodput At(SteadyTime now) const;
  v1::GoodputRecord Record(SteadyTime now) const;

 private:
  using Phase = v1::GoodputRecord::Phase;

  void Enter(Phase phase, SteadyTime now);
  // Counts the time since the record as training if workers, which are now in `step`, have trained in the meantime.
  void TakeUnheard(int64_t step);

  v1::GoodputRecord record_;  // state at since_, when its phase began
  SteadyTime since_;
  bool resumed_ = false;  // true between the construction from a record and the first change of phase
  // Time from the record to that change, and the phase in which it was counted; TakeUnheard may count it as training.
  absl::Duration unheard_;
  Phase unheard_phase_ = v1::GoodputRecord::PHASE_WAITING;
  std::optional<int64_t> last_step_;  // highest step of the running round, reported at last_at_
  SteadyTime last_at_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_GOODPUT_H_
