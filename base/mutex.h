#ifndef DDPRUN_BASE_MUTEX_H_
#define DDPRUN_BASE_MUTEX_H_

#include <pthread.h>

#include <ctime>
#include <mutex>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "base/steady_time.h"

namespace ddprun {

// std::mutex with clang's thread-safety annotations. absl::Mutex is not used: the distribution's absl is built without
// thread-sanitizer annotations, so every absl::Mutex would be reported as a race.
class ABSL_LOCKABLE Mutex {
 public:
  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mutex_.lock(); }
  void Unlock() ABSL_UNLOCK_FUNCTION() { mutex_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex* mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) : mutex_(mutex) { mutex_->Lock(); }
  ~MutexLock() ABSL_UNLOCK_FUNCTION() { mutex_->Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex* const mutex_;
};

// A condition variable for Mutex. Waits may end early: call them in a loop over the condition. std::condition_variable
// is not used: its waits on the steady clock call pthread_cond_clockwait, which requires glibc 2.30, and the programs
// also run with 2.28.
class CondVar {
 public:
  CondVar() {
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&condition_, &attributes);
    pthread_condattr_destroy(&attributes);
  }
  ~CondVar() { pthread_cond_destroy(&condition_); }
  CondVar(const CondVar&) = delete;
  CondVar& operator=(const CondVar&) = delete;

  void Wait(Mutex* mutex) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    pthread_cond_wait(&condition_, mutex->mutex_.native_handle());
  }
  // Returns at `deadline` at the latest; an infinite deadline is a plain Wait.
  void WaitUntil(Mutex* mutex, SteadyTime deadline) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    if (deadline == SteadyTime::InfiniteFuture()) return Wait(mutex);
    const timespec until = absl::ToTimespec(deadline.since_start());
    pthread_cond_timedwait(&condition_, mutex->mutex_.native_handle(), &until);
  }
  void NotifyAll() { pthread_cond_broadcast(&condition_); }

 private:
  pthread_cond_t condition_;
};

}  // namespace ddprun

#endif  // DDPRUN_BASE_MUTEX_H_
