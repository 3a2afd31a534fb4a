#ifndef DDPRUN_BASE_BACKGROUND_CALLS_H_
#define DDPRUN_BASE_BACKGROUND_CALLS_H_

#include <functional>
#include <memory>

#include "absl/time/time.h"

namespace ddprun {

// Calls that may take long, or for ever, each on a thread of its own. Threads: any. The destructor does not wait.
class BackgroundCalls {
 public:
  BackgroundCalls();
  ~BackgroundCalls();
  BackgroundCalls(const BackgroundCalls&) = delete;
  BackgroundCalls& operator=(const BackgroundCalls&) = delete;

  // `call` is destroyed on the thread that ran it. REQUIRES: it owns everything that it uses, or Wait is called without
  // a limit before that is destroyed.
  void Start(std::function<void()> call);

  // Waits until all calls have returned, up to `timeout`; those that have not are left behind.
  void Wait(absl::Duration timeout = absl::InfiniteDuration());

 private:
  struct Running;
  const std::shared_ptr<Running> running_;
};

}  // namespace ddprun

#endif  // DDPRUN_BASE_BACKGROUND_CALLS_H_
