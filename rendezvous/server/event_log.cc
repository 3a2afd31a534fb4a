#include "rendezvous/server/event_log.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace ddprun::rendezvous {

struct EventLog::Watch::State {
  std::function<void()> notify;
  int running = 0;  // running calls of notify; guarded by the log's mutex
};

EventLog::Watch::Watch(EventLog* log, std::shared_ptr<State> state) : log_(log), state_(std::move(state)) {}

EventLog::Watch& EventLog::Watch::operator=(Watch&& other) noexcept {
  if (this == &other) return *this;
  Reset();
  log_ = std::exchange(other.log_, nullptr);
  state_ = std::exchange(other.state_, nullptr);
  return *this;
}

void EventLog::Watch::Reset() {
  if (state_ == nullptr) return;
  MutexLock lock(&log_->mutex_);
  log_->watches_.remove(state_);
  while (state_->running > 0) log_->idle_.Wait(&log_->mutex_);
  state_.reset();
}

EventLog::~EventLog() { assert(watches_.empty()); }

void EventLog::Append(Event event) {
  std::vector<std::shared_ptr<Watch::State>> watches;
  {
    MutexLock lock(&mutex_);
    event.set_number(++newest_);
    events_.push_back(std::make_shared<const Event>(std::move(event)));
    if (events_.size() > capacity_) events_.pop_front();
    watches.assign(watches_.begin(), watches_.end());
    for (const auto& watch : watches) ++watch->running;
  }
  for (const auto& watch : watches) {
    watch->notify();
    MutexLock lock(&mutex_);
    --watch->running;
    idle_.NotifyAll();
  }
}

void EventLog::Restore(std::vector<Event> events, uint64_t earlier_servers) {
  const size_t skipped = events.size() - std::min(events.size(), capacity_);
  MutexLock lock(&mutex_);
  newest_ = earlier_servers * kNumbersPerServer;
  for (size_t i = skipped; i < events.size(); ++i) {
    events[i].set_number(++newest_);
    events_.push_back(std::make_shared<const Event>(std::move(events[i])));
  }
  restored_ = newest_;
}

uint64_t EventLog::restored() const {
  MutexLock lock(&mutex_);
  return restored_;
}

EventLog::Events EventLog::Read(uint64_t after, size_t limit) const {
  MutexLock lock(&mutex_);
  // The numbers have no gaps.
  const uint64_t first = newest_ - events_.size() + 1;
  const size_t begin = after > newest_ || after < first ? 0 : after - first + 1;
  const size_t count = std::min(limit, events_.size() - begin);
  const auto from = events_.begin() + static_cast<ptrdiff_t>(begin);
  return Events(from, from + static_cast<ptrdiff_t>(count));
}

uint64_t EventLog::newest() const {
  MutexLock lock(&mutex_);
  return newest_;
}

EventLog::Watch EventLog::AddWatch(std::function<void()> notify) {
  auto state = std::make_shared<Watch::State>();
  state->notify = std::move(notify);
  MutexLock lock(&mutex_);
  watches_.push_back(state);
  return Watch(this, std::move(state));
}

}  // namespace ddprun::rendezvous
