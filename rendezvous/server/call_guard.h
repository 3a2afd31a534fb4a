#ifndef DDPRUN_RENDEZVOUS_SERVER_CALL_GUARD_H_
#define DDPRUN_RENDEZVOUS_SERVER_CALL_GUARD_H_

#include <grpcpp/grpcpp.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rendezvous/core/credentials.h"
#include "rendezvous/server/refusal_log.h"
#include "rendezvous/wire/credential_files.h"
#include "rendezvous/wire/munge.h"

namespace ddprun::rendezvous {

// Decides for each call, when it begins, whether its caller may make it. Thread-safe.
class CallGuard {
 public:
  using Done = std::function<void(absl::StatusOr<Caller>)>;

  explicit CallGuard(const Credentials& credentials);

  // To be called once, before Check. The queue's thread is where all calls are served.
  void Start(grpc::CompletionQueue* queue) { queue_ = queue; }

  // Whether there are calls that it would not let pass on a connection that stands.
  bool demanding() const;

  // Whether callers on other hosts have to prove who they are. On the queue's thread.
  bool checks_callers() const;

  // Calls `done` with the caller on the queue's thread, before it returns or later. `context` is used before it returns
  // only. Callers without a token have all roles.
  //   UNAUTHENTICATED    the caller shows no token or MUNGE credential, or a wrong one.
  //   PERMISSION_DENIED  its certificate has none of the allowed names, the role of its token is below `needed`, or its
  //                      MUNGE credential is another user's.
  //   UNAVAILABLE        the token or the MUNGE credential can't be checked now.
  // Logs refusals, at most one line in ten seconds.
  void Check(const grpc::ServerContextBase& context, Role needed, Done done);

  // Ends the checks that are under way, and later ones, with CANCELLED. To be called while the queue runs.
  void Stop();

 private:
  absl::Status CheckNames(const std::vector<std::string>& names) const;
  absl::Status CheckToken(const std::string& authorization, Role needed, Caller* caller);
  void CheckMunge(const std::string& authorization, const std::string& peer, Caller caller, Done done);
  // True: nobody has to show a MUNGE credential, as there is no munge on this host.
  bool PassWithoutMunge(const absl::Status& status);
  void Finish(const std::string& peer, absl::StatusOr<Caller> caller, const Done& done);

  const Credentials credentials_;
  grpc::CompletionQueue* queue_ = nullptr;
  Tokens tokens_;
  std::optional<Munge> munge_;
  std::string munge_user_;  // of this process: no other user's credential is accepted
  bool has_munge_ = true;   // of the queue's thread; as the last check found
  RefusalLog log_;
};

// The name with which a server knows callers that have the same credentials as it; "": none. May read files.
std::string OwnName(const Credentials& credentials);

// The address without its port, in one of gRPC's names of peers: "10.0.0.1" of "ipv4:10.0.0.1:4711", and the same of
// "ipv6:%5B::ffff:10.0.0.1%5D:4711".
std::string AddressOfPeer(const std::string& peer);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_SERVER_CALL_GUARD_H_
