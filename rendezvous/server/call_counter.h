#ifndef DDPRUN_RENDEZVOUS_SERVER_CALL_COUNTER_H_
#define DDPRUN_RENDEZVOUS_SERVER_CALL_COUNTER_H_

#include "absl/base/thread_annotations.h"
#include "base/mutex.h"

namespace ddprun::rendezvous {

// Counts the calls that may still start gRPC operations. gRPC's queue must not be shut down before the count is zero
// (gRPC aborts the process if an operation is started later). Thread-safe.
class CallCounter {
 public:
  // Held by each call, also by one that is still awaited, for its whole lifetime.
  class Token {
   public:
    explicit Token(CallCounter* counter) : counter_(counter) {
      MutexLock lock(&counter_->mutex_);
      ++counter_->calls_;
    }
    ~Token() {
      // Notified under the lock: the counter may be destroyed as soon as the count is zero.
      MutexLock lock(&counter_->mutex_);
      if (--counter_->calls_ == 0) counter_->none_.NotifyAll();
    }
    Token(const Token&) = delete;
    Token& operator=(const Token&) = delete;

   private:
    CallCounter* const counter_;
  };

  void WaitForNone() {
    MutexLock lock(&mutex_);
    while (calls_ > 0) none_.Wait(&mutex_);
  }

 private:
  Mutex mutex_;
  CondVar none_;
  int calls_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_SERVER_CALL_COUNTER_H_
