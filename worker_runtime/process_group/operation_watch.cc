#include "worker_runtime/process_group/operation_watch.h"

#include <algorithm>

namespace ddprun {

void OperationWatch::Interrupt(SteadyTime now) {
  if (!interrupted_.has_value()) interrupted_ = now;
}

bool OperationWatch::Step(const Sight& sight, SteadyTime now) {
  if (interrupted_.has_value()) {
    // While a connection is open, bytes that have arrived may still be written to a tensor.
    const absl::Duration grace = sight.open == 0 ? kGrace : kSilence;
    return now - *interrupted_ >= grace;
  }
  if (sight.lost == 0) {
    silent_since_.reset();
    return false;
  }
  if (sight.one_failed) return true;
  if (!silent_since_.has_value() || sight.bytes != bytes_) silent_since_ = now;
  bytes_ = sight.bytes;
  return now - *silent_since_ >= kSilence;
}

SteadyTime OperationWatch::NextLook(SteadyTime now) const {
  if (!interrupted_.has_value()) return now + kBetweenLooks;
  return std::max(*interrupted_ + kGrace, now + kGrace / 5);
}

}  // namespace ddprun
