#ifndef DDPRUN_RENDEZVOUS_CORE_NOTICE_TIMER_H_
#define DDPRUN_RENDEZVOUS_CORE_NOTICE_TIMER_H_

#include <algorithm>
#include <optional>

#include "absl/time/time.h"
#include "base/steady_time.h"

namespace ddprun::rendezvous {

// When waiting nodes are next told what their job waits for (protocol 6): some time after the last change, so that
// nothing is said while nodes stream in; not later than a second after the first untold one; at most once a second.
// Thread-compatible.
class NoticeTimer {
 public:
  static constexpr absl::Duration kQuiet = absl::Milliseconds(250);
  static constexpr absl::Duration kInterval = absl::Seconds(1);

  void Changed(SteadyTime now) {
    if (!first_change_) first_change_ = now;
    last_change_ = now;
  }

  // The notices have been sent.
  void Sent(SteadyTime now) {
    first_change_.reset();
    last_sent_ = now;
  }

  // No node waits any more.
  void Clear() { first_change_.reset(); }

  // Infinite if nothing changed.
  SteadyTime Due() const {
    if (!first_change_) return SteadyTime::InfiniteFuture();
    SteadyTime due = std::min(last_change_ + kQuiet, *first_change_ + kInterval);
    if (last_sent_) due = std::max(due, *last_sent_ + kInterval);
    return due;
  }

 private:
  std::optional<SteadyTime> first_change_;  // since the last notices
  SteadyTime last_change_;
  std::optional<SteadyTime> last_sent_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_NOTICE_TIMER_H_
