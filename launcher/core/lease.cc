#include "launcher/core/lease.h"

#include <algorithm>

namespace ddprun::launcher {

void Lease::Answered() {
  if (asked_.empty()) return;
  since_ = std::max(since_, asked_.front());
  asked_.pop_front();
}

void Lease::StreamOver(bool silent) {
  asked_.clear();
  refusals_count_ = !silent;
}

void Lease::Refused(SteadyTime began) {
  if (refusals_count_) since_ = std::max(since_, began);
}

}  // namespace ddprun::launcher
