#ifndef DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_CANCELLABLE_H_
#define DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_CANCELLABLE_H_

#include <functional>
#include <stop_token>

#include "absl/status/status.h"

namespace ddprun {

// Runs `work`, a LibTorch call that can't be interrupted, and returns its result. If a stop is requested first, returns
// Cancelled at once: the thread that runs `work` is left behind and ends when `work` does. LibTorch's log is quiet
// until then (QuietLog), because no caller waits for that error. If `cancel` can't be stopped, `work` runs on the
// calling thread.
// REQUIRES: `work` owns everything that it uses; it is destroyed on the thread that ran it. It must end without help,
// so that threads do not accumulate.
absl::Status RunCancellable(const std::stop_token& cancel, std::function<absl::Status()> work);

// While an object of this class exists, LibTorch logs only fatal errors, in all threads, unless TORCH_CPP_LOG_LEVEL is
// set. For calls whose errors are returned or ignored: c10d logs them too, with its C++ stack. Thread-safe.
class QuietLog {
 public:
  QuietLog();
  ~QuietLog();
  QuietLog(const QuietLog&) = delete;
  QuietLog& operator=(const QuietLog&) = delete;
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_CANCELLABLE_H_
