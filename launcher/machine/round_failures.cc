#include "launcher/machine/round_failures.h"

#include <signal.h>

#include <algorithm>
#include <utility>

namespace ddprun::launcher {
namespace {

// A batch system that ends a node kills its processes one after another.
constexpr absl::Duration kKillSpread = absl::Milliseconds(50);

// Returns how long to hold back a cause; `longest` applies to failures that a signal may explain.
absl::Duration HoldOf(const FailureEvidence& cause, absl::Duration longest) {
  const FailureClass failure_class = Classify(cause);
  // The worker or one of its peers may have received a signal to stop.
  if (failure_class >= FailureClass::kOwnError) return longest;
  // This launcher may be the next process to be killed. Then its node is lost, and no worker has failed.
  if (failure_class == FailureClass::kCrash && cause.failure.signal() == SIGKILL) return std::min(longest, kKillSpread);
  return absl::ZeroDuration();
}

}  // namespace

void RoundFailures::Clear() {
  siblings_.clear();
  Forget();
}

void RoundFailures::Forget() {
  cause_.reset();
  due_.Clear();
}

void RoundFailures::Add(const std::vector<FailureEvidence>& found, SteadyTime now) {
  if (found.empty()) return;
  const size_t best = ChooseFirstCause(found);
  for (size_t i = 0; i < found.size(); ++i) {
    if (i != best) siblings_.push_back(found[i].failure);
  }
  if (!cause_) {
    cause_ = found[best];
    due_.Set(now + hold_);
  } else if (Caused(found[best], *cause_)) {
    siblings_.push_back(cause_->failure);
    cause_ = found[best];
  } else {
    siblings_.push_back(found[best].failure);
  }
  const absl::Duration hold = HoldOf(*cause_, hold_);
  if (hold < hold_ && now + hold < due_.at()) due_.Set(now + hold);
}

bool RoundFailures::Take(SteadyTime now) { return due_.Take(now); }

}  // namespace ddprun::launcher
