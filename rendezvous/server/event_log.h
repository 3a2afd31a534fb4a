#ifndef DDPRUN_RENDEZVOUS_SERVER_EVENT_LOG_H_
#define DDPRUN_RENDEZVOUS_SERVER_EVENT_LOG_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "rendezvous/core/event.h"

namespace ddprun::rendezvous {

// Ring of a server's newest events, with watchers. Event.number is an event's position among all events of one server,
// without gaps. Readers proceed at their own pace: each keeps the number of the last
// event it read and asks for those after it. A reader that falls behind the ring misses the oldest events but never
// blocks the server. Thread-safe.
class EventLog {
 public:
  static constexpr size_t kCapacity = 10'000;
  // Each server that continues the same records has this many numbers to itself, so that no number is used twice, even
  // if a killed server had numbered events that are in no record. The integers of JSON readers have room for 9 million
  // servers.
  static constexpr uint64_t kNumbersPerServer = 1'000'000'000;

  using Events = std::vector<std::shared_ptr<const Event>>;

  explicit EventLog(size_t capacity = kCapacity) : capacity_(capacity) {}
  ~EventLog();
  EventLog(const EventLog&) = delete;
  EventLog& operator=(const EventLog&) = delete;

  // Numbers the event and calls all watchers before it returns. Calls of several threads are ordered by their numbers,
  // but another thread's event may already be in the log when a watcher is called.
  void Append(Event event) ABSL_LOCKS_EXCLUDED(mutex_);

  // Starts with events of earlier servers, oldest first, which keep their time and get new numbers above those of all
  // `earlier_servers`. Watchers are not called. REQUIRES: nothing was appended.
  void Restore(std::vector<Event> events, uint64_t earlier_servers = 0) ABSL_LOCKS_EXCLUDED(mutex_);

  // All numbers up to this one belong to earlier servers or to restored events.
  uint64_t restored() const ABSL_LOCKS_EXCLUDED(mutex_);

  // Returns at most `limit` events with a number greater than `after`, oldest first. A number that is not yet assigned
  // comes from an earlier server; then all events are returned.
  Events Read(uint64_t after, size_t limit) const ABSL_LOCKS_EXCLUDED(mutex_);

  // Number of the newest event; restored() if there is none.
  uint64_t newest() const ABSL_LOCKS_EXCLUDED(mutex_);

  // Calls a function on each new event until it is destroyed.
  class Watch {
   public:
    // Watches nothing.
    Watch() = default;
    // Waits for a running call of the function to return. REQUIRES: not called by that function.
    ~Watch() { Reset(); }
    Watch(Watch&& other) noexcept { *this = std::move(other); }
    Watch& operator=(Watch&& other) noexcept;
    void Reset();

   private:
    friend class EventLog;
    struct State;
    Watch(EventLog* log, std::shared_ptr<State> state);

    EventLog* log_ = nullptr;
    std::shared_ptr<State> state_;
  };

  // `notify` is called with no lock held on the appending thread: it must not block, and may call the log. The log
  // outlives the watch.
  [[nodiscard]] Watch AddWatch(std::function<void()> notify) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  const size_t capacity_;
  mutable Mutex mutex_;
  CondVar idle_;  // a watcher's function has returned
  uint64_t newest_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t restored_ ABSL_GUARDED_BY(mutex_) = 0;
  std::deque<std::shared_ptr<const Event>> events_ ABSL_GUARDED_BY(mutex_);
  std::list<std::shared_ptr<Watch::State>> watches_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_SERVER_EVENT_LOG_H_
