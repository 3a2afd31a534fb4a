#ifndef DDPRUN_WORKER_RUNTIME_BASE_LAUNCHER_LINK_H_
#define DDPRUN_WORKER_RUNTIME_BASE_LAUNCHER_LINK_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "base/mutex.h"
#include "base/steady_time.h"
#include "worker_contract/worker_link.h"

namespace ddprun {

// A worker's end of the worker link (docs/worker_protocol.md). No call blocks or fails: without a launcher, and once
// the connection is lost, nothing is sent or received. Has a thread only with a listener. Thread-safe. In a forked
// child every call does nothing, because the connection belongs to the parent.
class LauncherLink {
 public:
  // Callbacks of an elastic worker. Called one at a time on the link's thread; must not block.
  struct Listener {
    std::function<void(const worker_contract::LauncherLinkMessage& line)> heard;
    std::function<void()> closed;  // the last call: no more lines follow; also called if the link never connected
  };

  // Connects to `address`, the value of DDPRUN_WORKER_LINK, unless it is empty. With a listener, see Listen.
  LauncherLink(absl::string_view address, int32_t rank, int32_t local_rank,
               std::optional<Listener> listener = std::nullopt);
  ~LauncherLink();
  LauncherLink(const LauncherLink&) = delete;
  LauncherLink& operator=(const LauncherLink&) = delete;

  // Returns this process's link, configured by its environment. The first call connects it; it is never destroyed.
  static LauncherLink& OfProcess();

  // Like OfProcess, with a listener. Returns nullptr if the link has one already.
  static LauncherLink* OfElasticProcess(Listener listener);

  // Announces to the launcher that this worker can re-form and answers checkpoint-now, and calls `listener` from now
  // on, on a thread of its own. Returns false if there is a listener already.
  bool Listen(Listener listener);

  // True if a launcher is connected, as far as is known.
  bool connected();

  // Sends `line` reliably while the connection lasts: data that the launcher does not read yet is buffered. REQUIRES: a
  // listener, whose thread sends the rest.
  void SendToLauncher(const worker_contract::WorkerLinkMessage& line);

  // Sends `progress`, unless the launcher does not keep up or the rate limit is reached: then it is held back, and a
  // newer report replaces it.
  void Report(const worker_contract::LinkProgress& progress);

  // Returns when this process will be killed, if the launcher has announced it.
  std::optional<SteadyTime> StopAt();

 private:
  // The first call makes the link, with the listener that the function returns.
  static LauncherLink& FirstOfProcess(absl::FunctionRef<std::optional<Listener>()> listener);
  // Appends a hello with the capabilities of now to the unsent lines.
  void Greet() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Flush() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns the lines received.
  std::vector<worker_contract::LauncherLinkMessage> Receive() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Close() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool OfThisProcess() const;
  void ReceiveLoop(const Listener& listener);
  void WakeListener();

  const pid_t pid_;
  const int32_t rank_;
  const int32_t local_rank_;
  const int wake_;  // an eventfd that interrupts the thread's wait
  Mutex mutex_;
  bool listens_ ABSL_GUARDED_BY(mutex_) = false;  // there is a thread
  int to_close_ ABSL_GUARDED_BY(mutex_) = -1;     // the socket, once it was shut down while the thread may use it
  int socket_ ABSL_GUARDED_BY(mutex_) = -1;
  // Lines that must arrive: the hello, those passed to Say, and the rest of a partly sent line.
  std::string unsent_ ABSL_GUARDED_BY(mutex_);
  std::optional<worker_contract::LinkProgress> newest_ ABSL_GUARDED_BY(mutex_);
  worker_contract::LineReader reader_ ABSL_GUARDED_BY(mutex_);
  std::optional<SteadyTime> stop_at_ ABSL_GUARDED_BY(mutex_);
  double allowance_ ABSL_GUARDED_BY(mutex_);  // reports that may still be sent, as of last_report_
  SteadyTime last_report_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_BASE_LAUNCHER_LINK_H_
