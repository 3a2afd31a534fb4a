#ifndef DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_CANCELLABLE_H_
#define DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_CANCELLABLE_H_

#include <functional>
#include <stop_token>

#include "absl/status/status.h"

namespace ddprun {

// Runs `work`, which LibTorch can't interrupt, and returns its result. If a stop is requested first, returns Cancelled
// at once: the thread that `work` runs on is left behind and ends when `work` does. LibTorch's log is quiet until then
// (QuietLog), because nothing waits for that error.
// REQUIRES: `work` owns everything that it uses; it is destroyed on the thread that ran it. It must end by itself, so
// that threads do not accumulate. Without a possible stop it runs on the calling thread.
absl::Status RunCancellable(const std::stop_token& cancel, std::function<absl::Status()> work);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_CANCELLABLE_H_
