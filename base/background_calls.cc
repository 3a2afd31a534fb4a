#include "base/background_calls.h"

#include <thread>
#include <utility>

#include "base/mutex.h"
#include "base/steady_time.h"

namespace ddprun {

struct BackgroundCalls::Running {
  Mutex mutex;
  CondVar changed;
  int calls ABSL_GUARDED_BY(mutex) = 0;
};

BackgroundCalls::BackgroundCalls() : running_(std::make_shared<Running>()) {}
BackgroundCalls::~BackgroundCalls() = default;

void BackgroundCalls::Start(std::function<void()> call) {
  {
    MutexLock lock(&running_->mutex);
    ++running_->calls;
  }
  std::thread([running = running_, call = std::move(call)]() mutable {
    call();
    call = nullptr;
    MutexLock lock(&running->mutex);
    --running->calls;
    running->changed.NotifyAll();
  }).detach();
}

void BackgroundCalls::Wait(absl::Duration timeout) {
  const SteadyTime deadline = SteadyNow() + timeout;
  MutexLock lock(&running_->mutex);
  while (running_->calls > 0 && SteadyNow() < deadline) running_->changed.WaitUntil(&running_->mutex, deadline);
}

}  // namespace ddprun
