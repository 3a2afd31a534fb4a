#ifndef DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_CANCELLABLE_H_
#define DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_CANCELLABLE_H_

#include <functional>
#include <memory>
#include <stop_token>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace ddprun {

// Runs `work`, a LibTorch call that can't be interrupted, and returns its result. If a stop is requested first, returns
// Cancelled at once: the thread that runs `work` is left behind and ends when `work` does. LibTorch's log is quiet
// until then (QuietLog), because no caller waits for that error. If `cancel` can't be stopped, `work` runs on the
// calling thread.
// REQUIRES: `work` owns everything that it uses; it is destroyed on the thread that ran it. It must end without help,
// so that threads do not accumulate.
absl::Status RunCancellable(const std::stop_token& cancel, std::function<absl::Status()> work);

// Calls that may take long, or for ever, each on a thread of its own. Threads: any. The destructor does not wait.
class BackgroundCalls {
 public:
  BackgroundCalls();
  ~BackgroundCalls();
  BackgroundCalls(const BackgroundCalls&) = delete;
  BackgroundCalls& operator=(const BackgroundCalls&) = delete;

  // REQUIRES: as for RunCancellable, `call` owns everything that it uses.
  void Start(std::function<void()> call);

  // Waits until all calls have returned, up to `timeout`; those that have not are left behind.
  void Wait(absl::Duration timeout);

 private:
  struct Running;
  const std::shared_ptr<Running> running_;
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_CANCELLABLE_H_
