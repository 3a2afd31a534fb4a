#ifndef DDPRUN_RENDEZVOUS_CLIENT_FAKE_CLIENT_H_
#define DDPRUN_RENDEZVOUS_CLIENT_FAKE_CLIENT_H_

#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "rendezvous/base/mutex.h"
#include "rendezvous/client/client.h"

namespace ddprun::rendezvous {

// What a test sees of the FakeClient that it handed to a launcher, also after the launcher destroyed it.
// Thread-safe.
class FakeClientProbe {
 public:
  // Calls the client's handler on the calling thread; does nothing once the client is gone. Not from two threads
  // at a time.
  void Emit(ClientEvent event) {
    Client::Handler handler;
    {
      MutexLock lock(&mutex_);
      handler = handler_;
    }
    if (handler != nullptr) handler(std::move(event));
  }

  // What was sent since the last call. Blocks until there are at least `at_least` messages.
  std::vector<LauncherMessage> TakeSent(size_t at_least = 0) {
    MutexLock lock(&mutex_);
    while (sent_.size() < at_least) changed_.Wait(&mutex_);
    return std::exchange(sent_, {});
  }

  int resets() const {
    MutexLock lock(&mutex_);
    return resets_;
  }
  bool closed() const {
    MutexLock lock(&mutex_);
    return closed_;
  }
  bool destroyed() const {
    MutexLock lock(&mutex_);
    return handler_ == nullptr;
  }

 private:
  friend class FakeClient;

  mutable Mutex mutex_;
  CondVar changed_;
  Client::Handler handler_ ABSL_GUARDED_BY(mutex_);
  std::vector<LauncherMessage> sent_ ABSL_GUARDED_BY(mutex_);
  int resets_ ABSL_GUARDED_BY(mutex_) = 0;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

// A Client without a server: the test emits the events. It keeps what is sent even before a Connected and after
// Close, for the test to judge.
class FakeClient final : public Client {
 public:
  FakeClient(std::shared_ptr<FakeClientProbe> probe, Handler handler) : probe_(std::move(probe)) {
    MutexLock lock(&probe_->mutex_);
    probe_->handler_ = std::move(handler);
  }

  ~FakeClient() override {
    MutexLock lock(&probe_->mutex_);
    probe_->handler_ = nullptr;
  }

  void Send(LauncherMessage message) override {
    {
      MutexLock lock(&probe_->mutex_);
      probe_->sent_.push_back(std::move(message));
    }
    probe_->changed_.NotifyAll();
  }

  void Reset() override {
    MutexLock lock(&probe_->mutex_);
    ++probe_->resets_;
  }

  void Close() override {
    MutexLock lock(&probe_->mutex_);
    probe_->closed_ = true;
  }

 private:
  const std::shared_ptr<FakeClientProbe> probe_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CLIENT_FAKE_CLIENT_H_
