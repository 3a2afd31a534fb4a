#ifndef DDPRUN_WORKER_RUNTIME_BASE_LAUNCHER_LINK_H_
#define DDPRUN_WORKER_RUNTIME_BASE_LAUNCHER_LINK_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "rendezvous/base/mutex.h"
#include "rendezvous/base/steady_time.h"
#include "worker_contract/worker_link.h"

namespace ddprun {

// A worker's end of the worker link (docs/worker_protocol.md). No call blocks, and none fails: without a launcher, and
// once the connection is lost, there is nobody to tell and nothing to hear. Has no thread. Thread-safe. In a forked
// child every call does nothing, because the connection is its parent's.
class LauncherLink {
 public:
  // Connects to `address`, the value of DDPRUN_WORKER_LINK; not at all if it is empty.
  LauncherLink(absl::string_view address, int32_t rank, int32_t local_rank);
  ~LauncherLink();
  LauncherLink(const LauncherLink&) = delete;
  LauncherLink& operator=(const LauncherLink&) = delete;

  // This process's own, from its environment; connected by the first call, and never destroyed.
  static LauncherLink& OfProcess();

  // Sends it, unless the launcher is behind or there are too many: then it is kept, and a newer one takes its place.
  void Report(const worker_contract::LinkProgress& progress);

  // When this process will be killed, if the launcher has said so.
  std::optional<SteadyTime> StopAt();

 private:
  void Flush() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Receive() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Close() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool OfThisProcess() const;

  const pid_t pid_;
  Mutex mutex_;
  int socket_ ABSL_GUARDED_BY(mutex_) = -1;
  std::string unsent_ ABSL_GUARDED_BY(mutex_);  // the rest of a line of which a part has been sent, or the hello
  std::optional<worker_contract::LinkProgress> newest_ ABSL_GUARDED_BY(mutex_);
  worker_contract::LineReader reader_ ABSL_GUARDED_BY(mutex_);
  std::optional<SteadyTime> stop_at_ ABSL_GUARDED_BY(mutex_);
  double allowance_ ABSL_GUARDED_BY(mutex_);  // reports that may still be sent, at the time of the last one
  SteadyTime last_report_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_BASE_LAUNCHER_LINK_H_
