#ifndef DDPRUN_LAUNCHER_OS_EVENT_LOOP_H_
#define DDPRUN_LAUNCHER_OS_EVENT_LOOP_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "launcher/os/unique_fd.h"
#include "rendezvous/base/mutex.h"
#include "rendezvous/base/steady_time.h"

namespace ddprun::launcher {

// The launcher's one epoll loop: file descriptors, functions posted by other threads, and one timer armed at the
// next deadline. It sleeps until one of them has something to do; nothing is polled.
//
// Threads: everything but Post and Quit belongs to the thread that calls Run, or to the time before Run. Callbacks
// run on that thread, one at a time, with no lock held; they may add and remove descriptors (their own too), post,
// quit, and destroy objects whose callbacks are registered, as long as those remove their descriptors first.
class EventLoop {
 public:
  // `events` are the EPOLL* bits that are ready.
  using FdCallback = std::function<void(uint32_t events)>;

  // Fails when the process has no file descriptor left.
  static absl::StatusOr<std::unique_ptr<EventLoop>> Create();
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  // Watches `fd` (level-triggered) for `events` (EPOLLIN, EPOLLOUT...). The loop does not own `fd`: call RemoveFd
  // before closing it. AlreadyExists if it is watched, else what epoll says about it.
  absl::Status AddFd(int fd, uint32_t events, FdCallback callback);

  // Changes what a watched `fd` is watched for. NotFound if it is not watched.
  absl::Status ModifyFd(int fd, uint32_t events);

  // The callback of `fd` is not called any more, even if it was due in this very turn. No-op if not watched.
  void RemoveFd(int fd);

  // The timer: `next_deadline` is asked before every sleep (InfiniteFuture: no timer), `on_deadline` is called with
  // the time once that moment has passed. `on_deadline` must move the deadline on, or the loop never sleeps.
  void SetTimer(std::function<SteadyTime()> next_deadline, std::function<void(SteadyTime)> on_deadline);

  // Runs `task` on the loop's thread in one of its next turns, in the order of posting. Thread-safe. Tasks that
  // are left when the loop is destroyed are dropped.
  void Post(std::function<void()> task);

  // Runs until Quit. May be called again after it has returned.
  void Run();

  // Makes Run return after the callback at hand. Thread-safe.
  void Quit();

  // Times that Run woke up from its sleep: an idle launcher should not count on.
  int64_t wakeups_for_test() const { return wakeups_; }

 private:
  struct Watch {
    int fd;
    FdCallback callback;
  };

  EventLoop(UniqueFd epoll, UniqueFd wake, UniqueFd timer);
  void RunPosted();
  void RunTimerIfDue();
  void ArmTimer();
  void Dispatch(uint64_t id, uint32_t events);
  void Wake();

  const UniqueFd epoll_;
  const UniqueFd wake_;   // eventfd: something was posted
  const UniqueFd timer_;  // timerfd at armed_
  SteadyTime armed_ = SteadyTime::InfiniteFuture();
  std::function<SteadyTime()> next_deadline_;
  std::function<void(SteadyTime)> on_deadline_;
  // Registrations carry a number that is never used again, so that an event of a descriptor that was closed and
  // opened anew within one turn goes nowhere.
  uint64_t next_id_;
  std::unordered_map<uint64_t, std::shared_ptr<Watch>> watches_;
  std::unordered_map<int, uint64_t> id_of_fd_;
  int64_t wakeups_ = 0;
  std::atomic<bool> quit_{false};

  Mutex mutex_;
  std::vector<std::function<void()>> posted_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_OS_EVENT_LOOP_H_
