#ifndef DDPRUN_RENDEZVOUS_CLIENT_BACKOFF_H_
#define DDPRUN_RENDEZVOUS_CLIENT_BACKOFF_H_

#include <algorithm>
#include <cstdint>
#include <random>

#include "absl/time/time.h"

namespace ddprun::rendezvous {

// Computes the wait before each retry and the timeout of each attempt. After a stream that worked, the first retry is
// immediate, because the server soon considers the node lost; then waits grow from 10 ms, doubling to 1 s. Each is
// shortened randomly, so that a thousand launchers do not retry at once. While attempts get no answer at all, the
// server may be overloaded (protocol 4.7): then waits double to 4 s and attempts have longer timeouts, so that less of
// the server's work is wasted. Thread-compatible; `seed` makes it repeatable.
class Backoff {
 public:
  static constexpr absl::Duration kFirst = absl::Milliseconds(10);
  static constexpr absl::Duration kMost = absl::Seconds(1);
  static constexpr absl::Duration kMostWithoutAnswer = absl::Seconds(4);
  static constexpr absl::Duration kTry = absl::Seconds(5);
  static constexpr absl::Duration kLongestTry = absl::Seconds(10);

  explicit Backoff(uint32_t seed) : random_(seed) {}

  // The stream works: the next retry is immediate.
  void Reset() {
    next_ = absl::ZeroDuration();
    try_ = kTry;
  }

  // `no_answer`: the previous attempt timed out without an answer.
  absl::Duration Next(bool no_answer = false) {
    try_ = no_answer ? std::min(2 * try_, kLongestTry) : kTry;
    const absl::Duration most = no_answer ? kMostWithoutAnswer : kMost;
    const absl::Duration wait = std::min(next_, most);
    next_ = std::clamp(2 * next_, kFirst, most);
    return wait * std::uniform_real_distribution<double>(0.5, 1.0)(random_);
  }

  // Timeout of the next attempt.
  absl::Duration longest_try() const { return try_; }

 private:
  absl::Duration next_ = kFirst;
  absl::Duration try_ = kTry;
  std::minstd_rand random_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CLIENT_BACKOFF_H_
