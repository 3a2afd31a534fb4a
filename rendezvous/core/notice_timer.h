#ifndef DDPRUN_RENDEZVOUS_CORE_NOTICE_TIMER_H_
#define DDPRUN_RENDEZVOUS_CORE_NOTICE_TIMER_H_

#include <algorithm>
#include <optional>

#include "absl/time/time.h"
#include "base/steady_time.h"

namespace ddprun::rendezvous {

// PURE: when the next Waiting messages of a job are due (protocol 6): kQuiet after the last change, so that none are
// sent while nodes are joining, but at most kInterval after the first unreported change, and at most once per
// kInterval. Thread-compatible.
class NoticeTimer {
 public:
  static constexpr absl::Duration kQuiet = absl::Milliseconds(250);
  static constexpr absl::Duration kInterval = absl::Seconds(1);

  // Reports that the content of Waiting changed.
  void Changed(SteadyTime now) {
    if (!first_change_) first_change_ = now;
    last_change_ = now;
  }

  // Reports that the messages were sent.
  void Sent(SteadyTime now) {
    first_change_.reset();
    last_sent_ = now;
  }

  // Reports that no node waits any more.
  void Clear() { first_change_.reset(); }

  // Returns when the next messages are due; infinite if nothing has changed since the last ones.
  SteadyTime Due() const {
    if (!first_change_) return SteadyTime::InfiniteFuture();
    SteadyTime due = std::min(last_change_ + kQuiet, *first_change_ + kInterval);
    if (last_sent_) due = std::max(due, *last_sent_ + kInterval);
    return due;
  }

 private:
  std::optional<SteadyTime> first_change_;  // first change since the last messages
  SteadyTime last_change_;
  std::optional<SteadyTime> last_sent_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_NOTICE_TIMER_H_
