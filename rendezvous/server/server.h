#ifndef DDPRUN_RENDEZVOUS_SERVER_SERVER_H_
#define DDPRUN_RENDEZVOUS_SERVER_SERVER_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "rendezvous/server/driver.h"

namespace ddprun::rendezvous {

// Offers a Driver to launchers in other processes over gRPC (proto/rendezvous.proto), with the standard health and
// reflection services. Messages, queues and memory are bounded. Thread-safe. The driver outlives the server.
class Server {
 public:
  // Listens on every address given ("127.0.0.1:29400", "[::1]:0": port 0 is a free one).
  //   ALREADY_EXISTS       another program listens on one of them.
  //   INVALID_ARGUMENT     one is malformed, or there is none.
  //   others               as ProbeListen (listen_probe.h).
  static absl::StatusOr<std::unique_ptr<Server>> Start(Driver* driver,
                                                       const std::vector<std::string>& listen_addresses);

  // As Shutdown.
  ~Server();

  // Of the first address.
  int port() const;

  // All addresses with their true ports, as they were given.
  const std::vector<std::string>& addresses() const;

  // Stops listening and ends all streams with UNAVAILABLE after what was queued for them; those whose launchers
  // don't read are cut after a second. Returns when no thread of the server calls the driver any more. Later calls
  // do nothing.
  void Shutdown();

 private:
  class Impl;
  explicit Server(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_SERVER_SERVER_H_
