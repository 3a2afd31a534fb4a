#ifndef DDPRUN_TESTS_LAUNCHER_STORE_STORE_ON_LOOP_H_
#define DDPRUN_TESTS_LAUNCHER_STORE_STORE_ON_LOOP_H_

#include <sys/epoll.h>

#include <cstdlib>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "launcher/io/event_loop.h"
#include "launcher/store/store_server.h"

namespace ddprun::launcher {

// A store on the event loop of its own thread, as in a launcher, with its log messages.
class StoreOnLoop {
 public:
  explicit StoreOnLoop(StoreOptions options = {}) {
    if (options.address.empty()) options.address = "127.0.0.1";
    options.log = [this](LogLevel level, absl::string_view text) {
      MutexLock lock(&mutex_);
      absl::StrAppend(&log_, level == LogLevel::kWarning ? "W " : "D ", text, "\n");
    };
    auto loop = EventLoop::Create();
    auto store = StoreServer::Open(std::move(options));
    if (!loop.ok() || !store.ok()) std::abort();
    loop_ = *std::move(loop);
    store_ = *std::move(store);
    port_ = store_->port();
    if (!loop_->AddFd(store_->PollFd(), EPOLLIN, [this](uint32_t) { store_->ProcessReady(); }).ok()) std::abort();
    thread_ = std::thread([this] { loop_->Run(); });
  }
  ~StoreOnLoop() {
    loop_->Quit();
    thread_.join();
    loop_->RemoveFd(store_->PollFd());
  }

  int port() const { return port_; }
  std::string log() {
    MutexLock lock(&mutex_);
    return log_;
  }

  // Calls `function(StoreServer&)` on the loop's thread and returns its result.
  template <typename Function>
  auto Call(Function function) {
    using Result = decltype(function(std::declval<StoreServer&>()));
    auto task = std::make_shared<std::packaged_task<Result()>>([&] { return function(*store_); });
    auto result = task->get_future();
    loop_->Post([task] { (*task)(); });
    return result.get();
  }
  int64_t Wakeups() {
    return Call([this](StoreServer&) { return loop_->wakeups_for_test(); });
  }

 private:
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<StoreServer> store_;
  int port_ = 0;
  std::thread thread_;
  Mutex mutex_;
  std::string log_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_TESTS_LAUNCHER_STORE_STORE_ON_LOOP_H_
