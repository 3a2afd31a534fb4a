#ifndef DDPRUN_WORKER_RUNTIME_ELASTIC_CORE_AGREEMENT_SCHEDULE_H_
#define DDPRUN_WORKER_RUNTIME_ELASTIC_CORE_AGREEMENT_SCHEDULE_H_

#include <cstdint>

#include "absl/time/time.h"

namespace ddprun {

// PURE: before which steps the ranks of an elastic training agree on stops and checkpoints, and which of their phases
// they report to the launcher. All ranks must decide alike without asking each other, so what is decided here follows
// from numbers of steps and from what the ranks agreed on, never from a rank's own clock.
//
// Agreements are `interval` of training apart. How many steps that is, is measured from one agreement to the next. It
// grows to twice as many at most, so that a pause of one step does not count for long, and is never more than
// kMostSteps, so that a stop is not noticed too late if steps suddenly take much longer.
//
// Phases are reported as long as a rank would not report more than kMostReports a second: beyond the limit of the link
// reports are left out, other ones on each rank, and a rank would look further behind than it is
// (docs/worker_protocol.md 3.3). With shorter steps only steps are reported, and every second, fourth ... of very short
// ones. Thread-compatible.
class AgreementSchedule {
 public:
  static constexpr int64_t kMostSteps = 64;
  static constexpr int64_t kMostReports = 400;

  // Zero: they agree before each step.
  explicit AgreementSchedule(absl::Duration interval) : interval_(interval) {}

  // A round begins with step number `step`. Nothing is known of how long steps take.
  void StartRound(int64_t step);

  // Whether the ranks agree before this step.
  bool Due(int64_t step) const { return step >= next_; }

  // They have agreed, before step number `step`, that since they agreed last the steps took `training` and had `phases`
  // phases: the largest values of all ranks.
  void Agreed(int64_t step, absl::Duration training, int64_t phases);

  // Whether each phase is reported.
  bool reports_phases() const { return reports_phases_; }
  // Whether this step is reported where phases are not.
  bool ReportsStep(int64_t step) const { return step % report_every_ == 0; }

 private:
  const absl::Duration interval_;
  int64_t last_ = 0;   // step before which they agreed last
  int64_t next_ = 0;   // and will next
  int64_t every_ = 1;  // steps between the two
  int64_t report_every_ = 1;
  bool reports_phases_ = true;
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_ELASTIC_CORE_AGREEMENT_SCHEDULE_H_
