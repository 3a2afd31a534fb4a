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

// Turns names into addresses by the system's resolver (which knows /etc/hosts and every name service of the host,
// as gRPC's own does not), without blocking. Thread-safe.
class Resolver {
 public:
  // gRPC's names of the addresses: "ipv4:10.0.0.1:29400". NOT_FOUND: the text says why there is none.
  using Result = absl::StatusOr<std::vector<std::string>>;
  using Done = std::function<void(Result)>;

  Resolver();
  // `done` of a name still looked up is never called.
  ~Resolver();

  // The name of a host that is written as an address; nullopt: it has to be looked up.
  static std::optional<std::string> Literal(const Endpoint& address);

  // The address in one of gRPC's names, with its port: "10.0.0.1:29400".
  static std::string AddressOf(const std::string& grpc_name);

  // Calls `done` from another thread. REQUIRES: no other look-up is under way.
  void Resolve(const Endpoint& address, Done done);

 private:
  struct Shared;
  const std::shared_ptr<Shared> shared_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CLIENT_RESOLVER_H_
