#ifndef DDPRUN_TESTS_RENDEZVOUS_STATE_COLLECTED_H_
#define DDPRUN_TESTS_RENDEZVOUS_STATE_COLLECTED_H_

#include <utility>
#include <vector>

#include "base/mutex.h"

namespace ddprun::rendezvous {

// Values passed by other threads, in order. Thread-safe.
template <typename T>
class Collected {
 public:
  void Add(T one) {
    {
      MutexLock lock(&mutex_);
      all_.push_back(std::move(one));
    }
    changed_.NotifyAll();
  }
  // Waits for so many; returns all.
  std::vector<T> Await(size_t count) {
    MutexLock lock(&mutex_);
    while (all_.size() < count) changed_.Wait(&mutex_);
    return all_;
  }
  size_t count() { return Await(0).size(); }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::vector<T> all_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_TESTS_RENDEZVOUS_STATE_COLLECTED_H_
