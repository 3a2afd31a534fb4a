#include "launcher/machine/round_failures.h"

#include <signal.h>

#include <algorithm>

namespace ddprun::launcher {
namespace {

// A batch system that ends a node kills its processes one after another.
constexpr absl::Duration kKillSpread = absl::Milliseconds(50);

}  // namespace

void RoundFailures::Clear(int32_t world_size) {
  world_size_ = world_size;
  Forget();
  siblings_.clear();
}

void RoundFailures::Forget() {
  if (due_.running() && Classify(*cause_) == FailureClass::kPeerError) siblings_.push_back(cause_->failure);
  cause_.reset();
  due_.Clear();
}

void RoundFailures::Schedule(SteadyTime now) {
  const FailureClass failure_class = Classify(*cause_);
  const bool all_failed = siblings_.size() + 1 >= static_cast<size_t>(world_size_);
  SteadyTime due = now;
  if (failure_class == FailureClass::kPeerError && !all_failed) {
    due = since_ + std::max(hold_, kPeerHold);
  } else if (failure_class >= FailureClass::kOwnError) {
    // The worker or one of its peers may have received a signal to stop.
    due = since_ + hold_;
  } else if (failure_class == FailureClass::kCrash && cause_->failure.signal() == SIGKILL) {
    // This launcher may be the next process to be killed. Then its node is lost, and no worker has failed.
    due = now + std::min(hold_, kKillSpread);
  }
  if (due < due_.at()) due_.Set(due);
}

void RoundFailures::Add(const std::vector<FailureEvidence>& found, SteadyTime now) {
  if (found.empty()) return;
  const size_t best = ChooseFirstCause(found);
  for (size_t i = 0; i < found.size(); ++i) {
    if (i != best) siblings_.push_back(found[i].failure);
  }
  if (!cause_) {
    cause_ = found[best];
    since_ = now;
  } else if (Caused(found[best], *cause_)) {
    siblings_.push_back(cause_->failure);
    cause_ = found[best];
  } else {
    siblings_.push_back(found[best].failure);
  }
  Schedule(now);
}

bool RoundFailures::Take(SteadyTime now) { return due_.Take(now); }

}  // namespace ddprun::launcher
