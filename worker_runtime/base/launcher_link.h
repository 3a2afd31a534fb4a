#ifndef DDPRUN_WORKER_RUNTIME_BASE_LAUNCHER_LINK_H_
#define DDPRUN_WORKER_RUNTIME_BASE_LAUNCHER_LINK_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/mutex.h"
#include "base/steady_time.h"
#include "worker_contract/worker_link.h"

namespace ddprun {

// A worker's end of the worker link (docs/worker_protocol.md). No call blocks, and none fails: without a launcher, and
// once the connection is lost, there is nobody to tell and nothing to hear. Has a thread only with a listener.
// Thread-safe. In a forked child every call does nothing, because the connection is its parent's.
class LauncherLink {
 public:
  // What an elastic worker does with what it hears. Called by the link's thread, one after the other; must not wait for
  // anything.
  struct Listener {
    std::function<void(const worker_contract::LauncherLine& line)> heard;
    std::function<void()> closed;  // the last call: nothing will be heard any more; also if nobody was ever connected
  };

  // Connects to `address`, the value of DDPRUN_WORKER_LINK; not at all if it is empty. With a listener the hello says
  // that the worker can re-form and answers checkpoint-now.
  LauncherLink(absl::string_view address, int32_t rank, int32_t local_rank,
               std::optional<Listener> listener = std::nullopt);
  ~LauncherLink();
  LauncherLink(const LauncherLink&) = delete;
  LauncherLink& operator=(const LauncherLink&) = delete;

  // This process's own, from its environment; connected by the first call, and never destroyed.
  static LauncherLink& OfProcess();

  // The same with a listener. Must be called before OfProcess, and once; nullptr if it was not.
  static LauncherLink* OfElasticProcess(Listener listener);

  // Whether somebody listens at the other end, as far as is known.
  bool connected();

  // Sends it for certain, as long as the connection lasts: what the launcher does not read yet is kept. REQUIRES: a
  // listener, so that there is a thread that sends the rest.
  void Say(const worker_contract::WorkerLine& line);

  // Sends it, unless the launcher is behind or there are too many: then it is kept, and a newer one takes its place.
  void Report(const worker_contract::LinkProgress& progress);

  // When this process will be killed, if the launcher has said so.
  std::optional<SteadyTime> StopAt();

 private:
  static LauncherLink& FirstOfProcess(std::optional<Listener> listener);
  void Flush() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns what was heard.
  std::vector<worker_contract::LauncherLine> Receive() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Close() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool OfThisProcess() const;
  void Listen();
  void WakeListener();

  const pid_t pid_;
  const std::optional<Listener> listener_;
  const int wake_;                             // an eventfd that ends the thread's wait; -1: there is no thread
  int to_close_ ABSL_GUARDED_BY(mutex_) = -1;  // the socket, once it has been shut down under the thread
  Mutex mutex_;
  int socket_ ABSL_GUARDED_BY(mutex_) = -1;
  // Lines that must arrive: the hello, what was said, and the rest of a line of which a part has been sent.
  std::string unsent_ ABSL_GUARDED_BY(mutex_);
  std::optional<worker_contract::LinkProgress> newest_ ABSL_GUARDED_BY(mutex_);
  worker_contract::LineReader reader_ ABSL_GUARDED_BY(mutex_);
  std::optional<SteadyTime> stop_at_ ABSL_GUARDED_BY(mutex_);
  double allowance_ ABSL_GUARDED_BY(mutex_);  // reports that may still be sent, at the time of the last one
  SteadyTime last_report_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_BASE_LAUNCHER_LINK_H_
