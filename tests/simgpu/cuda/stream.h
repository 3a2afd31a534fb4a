#ifndef DDPRUN_TESTS_SIMGPU_CUDA_STREAM_H_
#define DDPRUN_TESTS_SIMGPU_CUDA_STREAM_H_

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>

namespace simgpu {

// A queue with a thread. CUDA Programming Guide, "Streams": operations in a stream run in issue order; operations in
// different streams may overlap. All streams are like those that PyTorch makes (cudaStreamNonBlocking): the default
// stream does not synchronize with them, only events do.
//
// Thread-safe. Never deleted: a thread may still be waiting when cudaStreamDestroy returns.
class Stream {
 public:
  Stream(int device, int priority) : device_(device), priority_(priority) {}

  void Enqueue(std::function<void()> work);

  bool IsIdle();

  // Waits for the work enqueued so far.
  void Wait();

  // Lets the thread end when all work is done. cudaStreamDestroy: "the function will return immediately and the
  // resources will be released automatically once the device has completed all work in hStream".
  void Close();

  int device() const { return device_; }
  int priority() const { return priority_; }

 private:
  void Run();

  const int device_;
  const int priority_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  long enqueued_ = 0;
  long done_ = 0;
  bool has_thread_ = false;
  bool closed_ = false;
};

}  // namespace simgpu

#endif  // DDPRUN_TESTS_SIMGPU_CUDA_STREAM_H_
