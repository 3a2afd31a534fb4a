#ifndef DDPRUN_RENDEZVOUS_HA_FOLLOWER_SERVER_H_
#define DDPRUN_RENDEZVOUS_HA_FOLLOWER_SERVER_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "rendezvous/ha/etcd_client.h"
#include "rendezvous/server/server.h"

namespace ddprun::rendezvous {

// The gRPC server of a follower (protocol 4.8): it ends every call with FAILED_PRECONDITION and the leader as trailing
// metadata (wire/leader_hint.h), after the caller has authenticated. Thread-safe.
class FollowerServer {
 public:
  // Listens as Server::Start does, with the same errors. `client` answers who leads, and must outlive the server.
  static absl::StatusOr<std::unique_ptr<FollowerServer>> Start(EtcdClient* client, const EtcdKeys& keys,
                                                               const std::vector<std::string>& listen_addresses,
                                                               const ServerOptions& options);
  ~FollowerServer();  // calls Shutdown()

  // The addresses as given, with their actual ports.
  const std::vector<std::string>& addresses() const;

  // Stops listening and answers pending calls. Later calls do nothing.
  void Shutdown();

 private:
  class Impl;
  explicit FollowerServer(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_HA_FOLLOWER_SERVER_H_
