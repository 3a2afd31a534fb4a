#ifndef DDPRUN_RENDEZVOUS_SERVER_SERVER_H_
#define DDPRUN_RENDEZVOUS_SERVER_SERVER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "rendezvous/core/credentials.h"
#include "rendezvous/server/client_limits.h"
#include "rendezvous/server/driver.h"

namespace ddprun::rendezvous {

struct ServerOptions {
  Credentials credentials;  // required of callers. REQUIRES: accepted by CheckCredentials
  StreamLimits::Limits limits;
  ConnectionLimits::Limits connections;
  // Epoch of the leader among several servers (LeaderView), which launchers receive; 0: the only server.
  int64_t epoch = 0;
  // A socket that listens at all addresses of this host, non-blocking, which the server takes over instead of listening
  // by itself; -1: none.
  int listener = -1;
};

// Serves a Driver to launchers in other processes over gRPC (proto/rendezvous.proto), with the standard health and
// reflection services. Messages, queues and memory are bounded. With credentials every call is authenticated;
// reflection cannot be, and is then only offered if TLS alone authenticates. Thread-safe. The driver outlives the
// server.
class Server {
 public:
  // Listens on all given addresses ("127.0.0.1:29400", "[::1]:0"; port 0 selects a free one).
  //   ALREADY_EXISTS       one of the addresses is in use.
  //   INVALID_ARGUMENT     one is malformed, or none is given.
  //   others               see Listen (listen.h).
  static absl::StatusOr<std::unique_ptr<Server>> Start(Driver* driver, const std::vector<std::string>& listen_addresses,
                                                       const ServerOptions& options = {});

  // Calls Shutdown().
  ~Server();

  // Port of the first address.
  int port() const;

  // All addresses as given, with their actual ports.
  const std::vector<std::string>& addresses() const;

  // Stops listening and ends all streams with UNAVAILABLE after the messages queued for them; streams whose launchers
  // do not read are cut after a second. When it returns, no thread of the server calls the driver any more. Later calls
  // do nothing.
  void Shutdown();

 private:
  class Impl;
  explicit Server(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_SERVER_SERVER_H_
