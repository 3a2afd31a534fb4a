#ifndef DDPRUN_RENDEZVOUS_CLIENT_BACKOFF_H_
#define DDPRUN_RENDEZVOUS_CLIENT_BACKOFF_H_

#include <algorithm>
#include <cstdint>
#include <random>

#include "absl/time/time.h"

namespace ddprun::rendezvous {

// How long to wait before each further try, and how long a try may last: at once after a stream that worked (the server
// counts a node as lost soon), then 10 ms, doubling to 1 s, each a random part shorter so that a thousand launchers
// don't come at once. While tries get no answer at all, the server may have too much to do (protocol 4.7): then waits
// double to 4 s, and tries last longer, so that less of its work is for nothing. Thread-compatible; `seed` makes it
// repeatable.
class Backoff {
 public:
  static constexpr absl::Duration kFirst = absl::Milliseconds(10);
  static constexpr absl::Duration kMost = absl::Seconds(1);
  static constexpr absl::Duration kMostWithoutAnswer = absl::Seconds(4);
  static constexpr absl::Duration kTry = absl::Seconds(5);
  static constexpr absl::Duration kLongestTry = absl::Seconds(10);

  explicit Backoff(uint32_t seed) : random_(seed) {}

  // The stream works: the next try comes at once.
  void Reset() {
    next_ = absl::ZeroDuration();
    try_ = kTry;
  }

  // `no_answer`: the try before was given up because nothing came back.
  absl::Duration Next(bool no_answer = false) {
    try_ = no_answer ? std::min(2 * try_, kLongestTry) : kTry;
    const absl::Duration most = no_answer ? kMostWithoutAnswer : kMost;
    const absl::Duration wait = std::min(next_, most);
    next_ = std::clamp(2 * next_, kFirst, most);
    return wait * std::uniform_real_distribution<double>(0.5, 1.0)(random_);
  }

  // The most that the next try may last.
  absl::Duration longest_try() const { return try_; }

 private:
  absl::Duration next_ = kFirst;
  absl::Duration try_ = kTry;
  std::minstd_rand random_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CLIENT_BACKOFF_H_
