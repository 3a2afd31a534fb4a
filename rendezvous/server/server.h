#ifndef DDPRUN_RENDEZVOUS_SERVER_SERVER_H_
#define DDPRUN_RENDEZVOUS_SERVER_SERVER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "rendezvous/core/credentials.h"
#include "rendezvous/server/connection_limits.h"
#include "rendezvous/server/driver.h"
#include "rendezvous/server/stream_limits.h"

namespace ddprun::rendezvous {

struct ServerOptions {
  Credentials credentials;  // what callers must prove. REQUIRES: CheckCredentials found no fault
  StreamLimits::Limits limits;
  ConnectionLimits::Limits connections;
  // Of the leader among several servers (LeaderView), which launchers are told; 0: this server is the only one.
  int64_t epoch = 0;
};

// Offers a Driver to launchers in other processes over gRPC (proto/rendezvous.proto), with the standard health and
// reflection services. Messages, queues and memory are bounded. With credentials every call is authenticated;
// reflection, which can't be, is then only offered where TLS alone decides. Thread-safe. The driver outlives the
// server.
class Server {
 public:
  // Listens on every address given ("127.0.0.1:29400", "[::1]:0": port 0 is a free one).
  //   ALREADY_EXISTS       another program listens on one of them.
  //   INVALID_ARGUMENT     one is malformed, or there is none.
  //   others               as Listen (listen.h).
  static absl::StatusOr<std::unique_ptr<Server>> Start(Driver* driver, const std::vector<std::string>& listen_addresses,
                                                       const ServerOptions& options = {});

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
