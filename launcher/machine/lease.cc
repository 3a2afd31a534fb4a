#include "launcher/machine/lease.h"

#include <algorithm>

namespace ddprun::launcher {

void Lease::Answered(SteadyTime now) {
  if (asked_.empty()) return;
  in_touch_ = InTouch(now);
  since_ = std::max(since_, asked_.front());
  asked_.pop_front();
}

void Lease::StreamOver(bool silent) {
  asked_.clear();
  refusals_count_ = !silent;
}

void Lease::Refused(SteadyTime began, SteadyTime now) {
  if (!refusals_count_) return;
  in_touch_ = InTouch(now);
  since_ = std::max(since_, began);
}

}  // namespace ddprun::launcher
