#ifndef DDPRUN_LAUNCHER_HOST_ADDRESSES_H_
#define DDPRUN_LAUNCHER_HOST_ADDRESSES_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/config/launch_config.h"
#include "launcher/io/event_loop.h"

namespace ddprun::launcher {

// How the job's other nodes reach this host.
struct HostAddresses {
  std::string address;  // address for other nodes: --local-addr, else the source address of the route to the server
  // MASTER_ADDR if this node's store serves the job: --master-addr as given if it is an address of this host.
  std::string master;
  bool may_host = false;             // the endpoint is on this host: this launcher may host the server
  std::vector<std::string> serving;  // addresses at which a hosted server listens
  std::string note;                  // anything unusual about them: "node1 is 127.0.1.1 here"; may be empty
};

// Resolves the names in `config`, on a thread, while the loop runs. Later steps use only these addresses, so that no
// name server can block a running job. If the endpoint's name may become resolvable later, tries again for at most the
// join timeout. `stopped` returns true if the launcher is to exit; the loop must then be told to quit. Replaces the
// loop's timer. INVALID_ARGUMENT: a name does not resolve, or there is no route to the endpoint, and the message says
// what to set; UNAVAILABLE: the same, after the join timeout; CANCELLED: stopped.
absl::StatusOr<HostAddresses> FindHostAddresses(const LaunchConfig& config, EventLoop* loop,
                                                const std::function<bool()>& stopped);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_HOST_ADDRESSES_H_
