#ifndef DDPRUN_TESTS_SIMULATION_TIMELINE_H_
#define DDPRUN_TESTS_SIMULATION_TIMELINE_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <queue>
#include <random>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/steady_time.h"

namespace ddprun::testing {

// The simulated world's clock, event queue, random numbers and log. A seed determines the history.
class Timeline {
 public:
  // The source of the order of events. kChosen: the owner of the world delivers each packet and ends each worker by its
  // own calls, delays are zero, and notes are kept only after KeepNotes.
  enum class Order { kDrawn, kChosen };

  explicit Timeline(uint64_t seed, Order order = Order::kDrawn)
      : random_(seed), order_of_events_(order), keeps_notes_(order == Order::kDrawn) {}

  bool chosen() const { return order_of_events_ == Order::kChosen; }
  void KeepNotes() { keeps_notes_ = true; }

  SteadyTime now() const { return now_; }
  void At(SteadyTime time, std::function<void()> what);
  void In(absl::Duration wait, std::function<void()> what) { At(now_ + wait, std::move(what)); }

  // The time of the next event; infinite if there is none.
  SteadyTime NextEvent() const { return events_.empty() ? SteadyTime::InfiniteFuture() : events_.top().time; }
  // Runs the next event if it is due, and returns true if it was.
  bool RunOne();
  // REQUIRES: no event is due before `time`.
  void Advance(SteadyTime time) { now_ = std::max(now_, time); }

  absl::Duration Random(absl::Duration most);
  int Below(int n) { return static_cast<int>(random_() % n); }

  void Note(const std::string& text);
  std::string history() const;

 private:
  struct Event {
    SteadyTime time;
    uint64_t order;
    std::function<void()> what;
    bool operator<(const Event& other) const {
      return time > other.time || (time == other.time && order > other.order);
    }
  };

  std::mt19937_64 random_;
  const Order order_of_events_;
  bool keeps_notes_;
  SteadyTime now_ = SteadyTime::FromStart(absl::Seconds(1000));
  std::priority_queue<Event> events_;
  uint64_t order_ = 0;
  std::deque<std::string> history_;
};

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_SIMULATION_TIMELINE_H_
