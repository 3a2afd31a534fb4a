#ifndef DDPRUN_RENDEZVOUS_CLIENT_CONNECT_PROBE_H_
#define DDPRUN_RENDEZVOUS_CLIENT_CONNECT_PROBE_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "base/steady_time.h"

namespace ddprun::rendezvous {

// Checks whether any process listens at an address, with a connection that is closed at once. This evidence does not
// depend on a library's error messages. Thread-safe.
class ConnectProbe {
 public:
  // `refused`: the connection, started at `began`, was refused (ECONNREFUSED). False in all other cases: something
  // listens, no route, no answer within the timeout, an unparsable address.
  using Done = std::function<void(bool refused, SteadyTime began)>;

  ConnectProbe();
  // `done` of a pending probe is not called any more.
  ~ConnectProbe();

  // Calls `done` from another thread. `address` is "10.0.0.1:29400" or "[fe80::1%eth0]:29400". REQUIRES: no other probe
  // is pending.
  void Start(const std::string& address, absl::Duration timeout, Done done);

 private:
  struct Shared;
  const std::shared_ptr<Shared> shared_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CLIENT_CONNECT_PROBE_H_
