#ifndef DDPRUN_RENDEZVOUS_HA_FOLLOWER_SERVER_H_
#define DDPRUN_RENDEZVOUS_HA_FOLLOWER_SERVER_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "rendezvous/ha/leader_lookup.h"
#include "rendezvous/server/server.h"

namespace ddprun::rendezvous {

// The gRPC server of a follower: it ends every call with FAILED_PRECONDITION, which names the leader (leader_hint.h),
// after the caller has authenticated. Thread-safe. The lookup outlives it.
class FollowerServer {
 public:
  // Listens as Server::Start does, with the same errors.
  static absl::StatusOr<std::unique_ptr<FollowerServer>> Start(LeaderLookup* lookup,
                                                               const std::vector<std::string>& listen_addresses,
                                                               const ServerOptions& options);
  ~FollowerServer();  // calls Shutdown()

  // As Server::addresses.
  const std::vector<std::string>& addresses() const;

  // Stops listening and answers pending calls. The lookup is stopped. Later calls do nothing.
  void Shutdown();

 private:
  class Impl;
  explicit FollowerServer(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_HA_FOLLOWER_SERVER_H_
