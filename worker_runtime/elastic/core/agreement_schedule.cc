#include "worker_runtime/elastic/core/agreement_schedule.h"

#include <algorithm>

namespace ddprun {
namespace {

// Hysteresis: once phases are not reported, they are reported again only below this fraction of the limit, so that a
// training whose rate is close to the limit does not switch back and forth.
constexpr double kFewer = 0.8;

}  // namespace

void AgreementSchedule::StartRound(int64_t step) {
  last_ = next_ = step;
  every_ = report_every_ = 1;
  reports_phases_ = true;
}

void AgreementSchedule::Agreed(int64_t step, absl::Duration training, int64_t phases) {
  const int64_t steps = step - last_;
  last_ = step;
  if (steps > 0 && training > absl::ZeroDuration()) {
    // Rounded up, so that the ranks do not agree more often than that.
    const absl::Duration one = std::max(training / steps, absl::Nanoseconds(1));
    const int64_t wanted = std::min(absl::ToInt64Nanoseconds(interval_), kMostSteps * absl::ToInt64Nanoseconds(one));
    const int64_t enough = (wanted + absl::ToInt64Nanoseconds(one) - 1) / absl::ToInt64Nanoseconds(one);
    every_ = std::clamp<int64_t>(enough, 1, std::min(kMostSteps, 2 * every_));
    const double seconds = absl::ToDoubleSeconds(training);
    const double most = static_cast<double>(kMostReports) * (reports_phases_ ? 1 : kFewer);
    reports_phases_ = static_cast<double>(phases) <= most * seconds;
    report_every_ = 1;
    const auto count = static_cast<double>(steps);
    while (count > static_cast<double>(kMostReports * report_every_) * seconds && report_every_ < kMostSteps) {
      report_every_ *= 2;
    }
  }
  next_ = step + every_;
}

}  // namespace ddprun
