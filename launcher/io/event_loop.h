#ifndef DDPRUN_LAUNCHER_IO_EVENT_LOOP_H_
#define DDPRUN_LAUNCHER_IO_EVENT_LOOP_H_

#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "base/steady_time.h"
#include "launcher/io/file_descriptor.h"

namespace ddprun::launcher {

// The launcher's epoll loop: file descriptors, functions posted by other threads, and timers. It sleeps until one of
// them is ready; nothing is polled.
//
// Threads: Post and Quit are thread-safe; everything else must be called from the thread of Run, or before Run.
// Callbacks run on that thread, one at a time, with no lock held. They may add and remove descriptors (including their
// own), post, quit, and destroy objects with registered callbacks, if those remove their descriptors first.
class EventLoop {
 public:
  // `events` are the EPOLL* bits that are ready.
  using FdCallback = std::function<void(uint32_t events)>;

  // Fails if the process is out of file descriptors.
  static absl::StatusOr<std::unique_ptr<EventLoop>> Create();
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  // Watches `fd` (level-triggered) for `events` (EPOLLIN, EPOLLOUT...). The loop does not own `fd`: call RemoveFd
  // before closing it. AlreadyExists if it is already watched, else epoll's error.
  absl::Status AddFd(int fd, uint32_t events, FdCallback callback);

  // Changes the events of a watched `fd`. NotFound if it is not watched.
  absl::Status ModifyFd(int fd, uint32_t events);

  // Stops calling the callback of `fd`, even if it is ready in this iteration. No-op if not watched.
  void RemoveFd(int fd);

  struct Timer {
    std::function<SteadyTime()> next_deadline;
    std::function<void(SteadyTime)> on_deadline;
  };
  // Adds a timer, which exists as long as the result. `next_deadline` is called before every sleep (InfiniteFuture: not
  // armed), `on_deadline` is called with the current time once that moment has passed. It must advance the deadline, or
  // the loop never sleeps.
  [[nodiscard]] std::shared_ptr<const Timer> AddTimer(std::function<SteadyTime()> next_deadline,
                                                      std::function<void(SteadyTime)> on_deadline);

  // Runs `task` on the loop's thread in one of its next iterations, in the order of posting. Thread-safe. Tasks that
  // have not run when the loop is destroyed are dropped.
  void Post(std::function<void()> task);

  // Runs until Quit. May be called again after it has returned.
  void Run();

  // Makes Run return after the current callback. Thread-safe.
  void Quit();

  // Number of times that Run woke up. It does not grow while a launcher is idle.
  int64_t wakeups_for_test() const { return wakeups_; }

 private:
  struct Watch {
    int fd;
    FdCallback callback;
  };

  EventLoop(UniqueFd epoll, UniqueFd wake, UniqueFd timer);
  void RunPosted();
  void RunDueTimers();
  void ArmTimer();
  void Dispatch(uint64_t id, uint32_t events);
  void Wake();

  const UniqueFd epoll_;
  const UniqueFd wake_;   // eventfd: something was posted
  const UniqueFd timer_;  // timerfd at armed_, the earliest deadline
  SteadyTime armed_ = SteadyTime::InfiniteFuture();
  std::vector<std::weak_ptr<const Timer>> timers_;
  // Each registration has a unique number, so that an event of a descriptor that was closed and reopened within one
  // iteration is ignored.
  uint64_t next_id_;
  std::unordered_map<uint64_t, std::shared_ptr<Watch>> watches_;
  std::unordered_map<int, uint64_t> id_of_fd_;
  int64_t wakeups_ = 0;
  std::atomic<bool> quit_{false};

  Mutex mutex_;
  std::vector<std::function<void()>> posted_ ABSL_GUARDED_BY(mutex_);
};

// Runs a function that may block (getaddrinfo) on its own thread while the loop continues. Belongs to the loop's
// thread, and must be destroyed before the loop.
template <typename Result>
class BackgroundCall {
 public:
  // `done` is called on the loop's thread with the result of `work`, unless this object has been destroyed. `work`
  // can't be canceled: it may outlive this object, so it must own what it uses.
  BackgroundCall(EventLoop* loop, std::function<Result()> work, std::function<void(Result)> done)
      : shared_(std::make_shared<Shared>()) {
    shared_->loop = loop;
    shared_->done = std::move(done);
    sigset_t all, saved;  // this thread handles no signals
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &saved);
    std::thread([shared = shared_, work = std::move(work)] {
      auto result = std::make_shared<Result>(work());
      // The lock makes the destructor wait for this Post.
      MutexLock lock(&shared->mutex);
      if (shared->loop == nullptr) return;
      shared->loop->Post([shared, result] {
        if (shared->done) std::exchange(shared->done, nullptr)(std::move(*result));
      });
    }).detach();
    pthread_sigmask(SIG_SETMASK, &saved, nullptr);
  }

  ~BackgroundCall() {
    shared_->done = nullptr;
    MutexLock lock(&shared_->mutex);
    shared_->loop = nullptr;
  }
  BackgroundCall(const BackgroundCall&) = delete;
  BackgroundCall& operator=(const BackgroundCall&) = delete;

 private:
  struct Shared {
    std::function<void(Result)> done;  // the loop's thread only
    Mutex mutex;
    EventLoop* loop ABSL_GUARDED_BY(mutex) = nullptr;  // null: the BackgroundCall was destroyed
  };

  const std::shared_ptr<Shared> shared_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_IO_EVENT_LOOP_H_
