#ifndef DDPRUN_BASE_FILE_SNAPSHOT_H_
#define DDPRUN_BASE_FILE_SNAPSHOT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "base/steady_time.h"

namespace ddprun {

// A value read from files. A dedicated thread reads them, because a network file system may stall for any time and
// threads that carry heartbeats must not stall with it. The thread sleeps until Get is called. Thread-safe.
template <typename T>
class FileSnapshot {
 public:
  // How long Get waits for the files: once per stall, and less than the time between two heartbeats.
  static constexpr absl::Duration kPatience = absl::Milliseconds(100);

  struct Seen {
    T value;
    bool current;  // the files were read after Get was called
  };

  // `read` updates the value from the files. It may outlive this object and must own everything it uses. nullptr: the
  // value never changes.
  FileSnapshot(T first, std::function<void(T*)> read)
      : shared_(std::make_shared<Shared>(std::move(first), std::move(read))) {
    if (shared_->read != nullptr) std::thread([shared = shared_] { Run(shared.get()); }).detach();
  }
  // Does not wait for the files.
  ~FileSnapshot() {
    MutexLock lock(&shared_->mutex);
    shared_->ended = true;
    shared_->changed.NotifyAll();
  }
  FileSnapshot(const FileSnapshot&) = delete;
  FileSnapshot& operator=(const FileSnapshot&) = delete;

  // Returns the current content of the files, or the previous one if reading takes longer than kPatience. After such a
  // timeout, calls do not wait until a read has been fast again. The first call waits as long as necessary.
  Seen Get() {
    Shared& shared = *shared_;
    MutexLock lock(&shared.mutex);
    if (shared.read == nullptr) return {shared.value, true};
    const uint64_t wanted = ++shared.asked;
    shared.changed.NotifyAll();
    const SteadyTime deadline = shared.answered == 0 ? SteadyTime::InfiniteFuture() : SteadyNow() + kPatience;
    while (shared.answered < wanted && !shared.slow && SteadyNow() < deadline) {
      shared.changed.WaitUntil(&shared.mutex, deadline);
    }
    if (shared.answered < wanted) shared.slow = true;
    return {shared.value, shared.answered >= wanted};
  }

 private:
  struct Shared {
    Shared(T first, std::function<void(T*)> read) : read(std::move(read)), value(std::move(first)) {}

    const std::function<void(T*)> read;
    Mutex mutex;
    CondVar changed;
    T value ABSL_GUARDED_BY(mutex);
    uint64_t asked ABSL_GUARDED_BY(mutex) = 0;     // calls of Get
    uint64_t answered ABSL_GUARDED_BY(mutex) = 0;  // calls of Get that came before the value was read
    bool slow ABSL_GUARDED_BY(mutex) = false;      // the files took longer than kPatience
    bool ended ABSL_GUARDED_BY(mutex) = false;
  };

  static void Run(Shared* shared) {
    while (true) {
      uint64_t asked = 0;
      T value;
      {
        MutexLock lock(&shared->mutex);
        while (shared->asked == shared->answered && !shared->ended) shared->changed.Wait(&shared->mutex);
        if (shared->ended) return;
        asked = shared->asked;
        value = shared->value;
      }
      const SteadyTime began = SteadyNow();
      shared->read(&value);
      MutexLock lock(&shared->mutex);
      shared->value = std::move(value);
      shared->answered = asked;
      shared->slow = SteadyNow() - began > kPatience;
      shared->changed.NotifyAll();
    }
  }

  const std::shared_ptr<Shared> shared_;  // shared with the detached thread, which may be blocked on the files
};

}  // namespace ddprun

#endif  // DDPRUN_BASE_FILE_SNAPSHOT_H_
