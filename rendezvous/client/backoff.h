#ifndef DDPRUN_RENDEZVOUS_CLIENT_BACKOFF_H_
#define DDPRUN_RENDEZVOUS_CLIENT_BACKOFF_H_

#include <algorithm>
#include <cstdint>
#include <random>

#include "absl/time/time.h"

namespace ddprun::rendezvous {

// How long to wait before each further try: at once after a stream that worked (the server counts a node as lost
// soon), then 10 ms, doubling to 1 s, each a random part shorter so that a thousand launchers don't come at once.
// Thread-compatible; `seed` makes it repeatable.
class Backoff {
 public:
  static constexpr absl::Duration kFirst = absl::Milliseconds(10);
  static constexpr absl::Duration kMost = absl::Seconds(1);

  explicit Backoff(uint32_t seed) : random_(seed) {}

  // The stream works: the next try comes at once.
  void Reset() { next_ = absl::ZeroDuration(); }

  absl::Duration Next() {
    const absl::Duration wait = next_;
    next_ = std::clamp(2 * next_, kFirst, kMost);
    return wait * std::uniform_real_distribution<double>(0.5, 1.0)(random_);
  }

 private:
  absl::Duration next_ = kFirst;
  std::minstd_rand random_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CLIENT_BACKOFF_H_
