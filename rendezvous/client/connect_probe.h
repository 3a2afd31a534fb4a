#ifndef DDPRUN_RENDEZVOUS_CLIENT_CONNECT_PROBE_H_
#define DDPRUN_RENDEZVOUS_CLIENT_CONNECT_PROBE_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "base/steady_time.h"

namespace ddprun::rendezvous {

// Asks the kernel whether anybody listens at an address, with a connection that is closed at once: evidence that does
// not hang on the words of a library. Thread-safe.
class ConnectProbe {
 public:
  // `refused`: the connection, begun at `began`, was refused (ECONNREFUSED). False for anything else: somebody listens,
  // no route, no answer within the timeout, an address that can't be read.
  using Done = std::function<void(bool refused, SteadyTime began)>;

  ConnectProbe();
  // `done` of a probe that is under way is never called.
  ~ConnectProbe();

  // Calls `done` from another thread. `address` is "10.0.0.1:29400" or "[fe80::1%eth0]:29400".
  // REQUIRES: no other probe is under way.
  void Start(const std::string& address, absl::Duration timeout, Done done);

 private:
  struct Shared;
  const std::shared_ptr<Shared> shared_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CLIENT_CONNECT_PROBE_H_
