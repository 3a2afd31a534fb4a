#include "launcher/core/round_failures.h"

#include <utility>

namespace ddprun::launcher {
namespace {

// Whether a worker that ended so may have done it because of a signal to stop that it or one of its peers got.
bool MayBeASignalsWork(FailureClass failure_class) { return failure_class >= FailureClass::kOwnError; }

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
  if (!MayBeASignalsWork(Classify(*cause_))) due_.Set(now);
}

bool RoundFailures::Take(SteadyTime now) { return due_.Take(now); }

}  // namespace ddprun::launcher
