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

// An event with its place among all events of one server.
struct LoggedEvent {
  uint64_t number = 0;  // without gaps within one server
  Event event;
};

// The newest events of one server, and who is told of new ones. Readers go at their own pace: each keeps the number of
// the last event that it took, and asks for those after it. One that falls behind the ring misses the oldest, never
// holds up the server. Thread-safe.
class EventLog {
 public:
  static constexpr size_t kCapacity = 10'000;
  // Each server with the same records has so many numbers of its own: none is given to two events, whatever events a
  // killed server had numbered that are in no record. 9 million servers fit into the integers of JSON readers.
  static constexpr uint64_t kNumbersPerServer = 1'000'000'000;

  using Events = std::vector<std::shared_ptr<const LoggedEvent>>;

  explicit EventLog(size_t capacity = kCapacity) : capacity_(capacity) {}
  ~EventLog();
  EventLog(const EventLog&) = delete;
  EventLog& operator=(const EventLog&) = delete;

  // Gives the event its number, and calls all watchers before it returns. Calls of several threads are in the order of
  // their numbers; but another thread's event may be there already when a watcher is called.
  void Append(Event event) ABSL_LOCKS_EXCLUDED(mutex_);

  // Begins with events of servers before this one, the oldest first, which have their time and get new numbers, above
  // those of all `earlier_servers`. No watcher is told. REQUIRES: nothing was appended.
  void Restore(std::vector<Event> events, uint64_t earlier_servers = 0) ABSL_LOCKS_EXCLUDED(mutex_);

  // All numbers up to this one are of servers before this one, or of events that were restored.
  uint64_t restored() const ABSL_LOCKS_EXCLUDED(mutex_);

  // At most `limit` events with a number greater than `after`, the oldest first. A number that was not given yet is of
  // a server before this one: then all events count.
  Events Read(uint64_t after, size_t limit) const ABSL_LOCKS_EXCLUDED(mutex_);

  // Of the newest event; restored(): none yet.
  uint64_t newest() const ABSL_LOCKS_EXCLUDED(mutex_);

  // Calls a function when there is a new event, until it is destroyed.
  class Watch {
   public:
    // Does nothing.
    Watch() = default;
    // Waits until the function, if it is being called, has returned. REQUIRES: not called by that function.
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

  // `notify` is called with no lock held, on the thread that appends: it must not block, and may call the log. The log
  // outlives the watch.
  [[nodiscard]] Watch AddWatch(std::function<void()> notify) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  const size_t capacity_;
  mutable Mutex mutex_;
  CondVar idle_;  // a watcher's function has returned
  uint64_t newest_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t restored_ ABSL_GUARDED_BY(mutex_) = 0;
  std::deque<std::shared_ptr<const LoggedEvent>> events_ ABSL_GUARDED_BY(mutex_);
  std::list<std::shared_ptr<Watch::State>> watches_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_SERVER_EVENT_LOG_H_
