#ifndef DDPRUN_RENDEZVOUS_SERVER_CALL_COUNTER_H_
#define DDPRUN_RENDEZVOUS_SERVER_CALL_COUNTER_H_

#include "absl/base/thread_annotations.h"
#include "base/mutex.h"

namespace ddprun::rendezvous {

// How many calls may still start operations of gRPC: its queue must not be shut down before there are none (gRPC
// aborts the process if an operation is started later). Thread-safe.
class CallCounter {
 public:
  // A call, also one that is still awaited, has one of these for as long as it lives.
  class Token {
   public:
    explicit Token(CallCounter* counter) : counter_(counter) {
      MutexLock lock(&counter_->mutex_);
      ++counter_->calls_;
    }
    ~Token() {
      // Notified under the lock: without calls the counter may go at once.
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
