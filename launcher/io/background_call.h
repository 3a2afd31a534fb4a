#ifndef DDPRUN_LAUNCHER_IO_BACKGROUND_CALL_H_
#define DDPRUN_LAUNCHER_IO_BACKGROUND_CALL_H_

#include <pthread.h>
#include <signal.h>

#include <functional>
#include <memory>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "base/mutex.h"
#include "launcher/io/event_loop.h"

namespace ddprun::launcher {

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

#endif  // DDPRUN_LAUNCHER_IO_BACKGROUND_CALL_H_
