#ifndef DDPRUN_RENDEZVOUS_CLIENT_RESOLVER_H_
#define DDPRUN_RENDEZVOUS_CLIENT_RESOLVER_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/endpoint.h"

namespace ddprun::rendezvous {

// Resolves names with the system's resolver, which unlike gRPC's own uses /etc/hosts and all name services of the host,
// without blocking. Thread-safe.
class Resolver {
 public:
  // gRPC's names of the addresses: "ipv4:10.0.0.1:29400". NOT_FOUND: the message says why there is none.
  using Result = absl::StatusOr<std::vector<std::string>>;
  using Done = std::function<void(Result)>;

  Resolver();
  // `done` of a pending lookup is not called any more.
  ~Resolver();

  // Returns gRPC's name of a host that is given as an address; nullopt: it must be looked up.
  static std::optional<std::string> Literal(const Endpoint& address);

  // Extracts address and port from one of gRPC's names: "10.0.0.1:29400".
  static std::string AddressOf(const std::string& grpc_name);

  // Calls `done` from another thread. REQUIRES: no other lookup is pending.
  void Resolve(const Endpoint& address, Done done);

 private:
  struct Shared;
  const std::shared_ptr<Shared> shared_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CLIENT_RESOLVER_H_
