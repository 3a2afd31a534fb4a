#include "tests/simgpu/cuda/stream.h"

#include <unistd.h>

#include <thread>
#include <utility>

#include "tests/simgpu/cuda/machine.h"
#include "tests/simgpu/settings.h"

namespace simgpu {

void Stream::Enqueue(std::function<void()> work) {
  std::lock_guard<std::mutex> lock(mutex_);
  queue_.push_back(std::move(work));
  ++enqueued_;
  if (!has_thread_) {
    has_thread_ = true;
    std::thread([this] { Run(); }).detach();
  }
  changed_.notify_all();
}

bool Stream::IsIdle() {
  std::lock_guard<std::mutex> lock(mutex_);
  return done_ == enqueued_;
}

void Stream::Wait() {
  std::unique_lock<std::mutex> lock(mutex_);
  const long until = enqueued_;
  changed_.wait(lock, [&] { return done_ >= until; });
}

void Stream::Close() {
  std::lock_guard<std::mutex> lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

void Stream::Run() {
  SetCurrentDevice(device_);
  const long delay_us = NumberSetting("SIMCUDA_DELAY_US", 0);
  while (true) {
    std::function<void()> work;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [&] { return !queue_.empty() || closed_; });
      if (queue_.empty()) return;
      work = std::move(queue_.front());
      queue_.pop_front();
    }
    if (delay_us > 0) usleep(delay_us);
    work();
    work = nullptr;  // frees what it holds before anyone learns that it is done
    std::lock_guard<std::mutex> lock(mutex_);
    ++done_;
    changed_.notify_all();
  }
}

}  // namespace simgpu
