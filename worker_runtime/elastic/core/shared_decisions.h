#ifndef DDPRUN_WORKER_RUNTIME_ELASTIC_CORE_SHARED_DECISIONS_H_
#define DDPRUN_WORKER_RUNTIME_ELASTIC_CORE_SHARED_DECISIONS_H_

#include <compare>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "worker_runtime/ddp/ddp_options.h"

namespace ddprun {

// PURE: decides before which steps the ranks of an elastic training agree on stops and checkpoints, and which phases
// they report to the launcher. All ranks must decide alike without communicating, so decisions depend only on step
// numbers and on values that the ranks agreed on, never on a rank's own clock.
//
// Agreements are `interval` of training time apart. The number of steps in it is measured from one agreement to the
// next. It at most doubles each time, so that a pause in one step has no lasting effect, and never exceeds kMostSteps,
// so that a stop is not noticed too late if steps suddenly take much longer.
//
// Phases are reported while a rank would make at most kMostReports reports a second: above the link's limit reports are
// dropped, different ones on each rank, and a rank would appear to be further behind than it is
// (docs/worker_protocol.md 3.3). With shorter steps only steps are reported; with very short ones, every second, fourth
// ... step. Thread-compatible.
class AgreementSchedule {
 public:
  static constexpr int64_t kMostSteps = 64;
  static constexpr int64_t kMostReports = 400;

  // `interval` zero: agree before each step.
  explicit AgreementSchedule(absl::Duration interval) : interval_(interval) {}

  // A round begins with step number `step`. The duration of steps is unknown at that point.
  void StartRound(int64_t step);

  // True if the ranks agree before this step.
  bool Due(int64_t step) const { return step >= next_; }

  // The ranks have agreed before step number `step`. `training` and `phases` are the time and the number of phases of
  // the steps since the previous agreement: the largest values of all ranks.
  void Agreed(int64_t step, absl::Duration training, int64_t phases);

  // True if each phase is reported.
  bool reports_phases() const { return reports_phases_; }
  // True if this step is reported when phases are not.
  bool ReportsStep(int64_t step) const { return step % report_every_ == 0; }

 private:
  const absl::Duration interval_;
  int64_t last_ = 0;   // step before which they last agreed
  int64_t next_ = 0;   // step before which they agree next
  int64_t every_ = 1;  // steps between the two
  int64_t report_every_ = 1;
  bool reports_phases_ = true;
};

// PURE: rules of a recovery that all ranks apply alike. Thread-safe.
// Position of a training state: `step` optimizer steps, and `part` of the work between that step and the next.
struct CommittedPoint {
  int64_t step = 0;
  int64_t part = 0;

  friend auto operator<=>(const CommittedPoint&, const CommittedPoint&) = default;
};

// Returns the rank whose training state all ranks continue with, given the point that each holds (nullopt: none): the
// rank that is farthest, the lowest among equals. nullopt: no rank holds a state.
std::optional<int> ChooseStateSource(absl::Span<const std::optional<CommittedPoint>> committed);

// Encodes DDP's buckets as a text for other ranks, "3 2 1;0", and decodes it. Errors: DataLoss: not such a text.
std::string BucketLayoutText(const BucketLayout& layout);
absl::StatusOr<BucketLayout> FromBucketLayoutText(absl::string_view text);

// PURE: seed for the random numbers of one rank's step, so that a repeated step draws the same ones. Differs with each
// of the three arguments. Thread-safe.
uint64_t StepSeed(uint64_t seed, int64_t step, int rank);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_ELASTIC_CORE_SHARED_DECISIONS_H_
