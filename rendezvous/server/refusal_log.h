#ifndef DDPRUN_RENDEZVOUS_SERVER_REFUSAL_LOG_H_
#define DDPRUN_RENDEZVOUS_SERVER_REFUSAL_LOG_H_

#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/steady_time.h"

namespace ddprun::rendezvous {

// Rate-limits warnings that unauthenticated clients can provoke: one line per ten seconds, with the number of lines
// suppressed since the last one. Thread-safe.
class RefusalLog {
 public:
  void Warn(absl::string_view line) {
    int unlogged = 0;
    {
      MutexLock lock(&mutex_);
      const SteadyTime now = SteadyNow();
      if (now < next_line_) {
        ++unlogged_;
        return;
      }
      next_line_ = now + absl::Seconds(10);
      unlogged = std::exchange(unlogged_, 0);
    }
    Log(LogLevel::kWarning,
        absl::StrCat(line, unlogged > 0 ? absl::StrCat(" (and ", unlogged, " more since the last warning)") : ""));
  }

 private:
  Mutex mutex_;
  SteadyTime next_line_ ABSL_GUARDED_BY(mutex_) = SteadyTime::InfinitePast();
  int unlogged_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_SERVER_REFUSAL_LOG_H_
