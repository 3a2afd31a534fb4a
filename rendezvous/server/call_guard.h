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
#include "rendezvous/server/acceptor.h"
#include "rendezvous/wire/credential_files.h"
#include "rendezvous/wire/munge.h"

namespace ddprun::rendezvous {

// Authorizes each call when it begins. Thread-safe.
class CallGuard {
 public:
  using Done = std::function<void(absl::StatusOr<Caller>)>;

  explicit CallGuard(const Credentials& credentials);

  // Call once, before Check. All calls are served on the queue's thread.
  void Start(grpc::CompletionQueue* queue) { queue_ = queue; }

  // True if some calls would be refused even on an established connection.
  bool demanding() const;

  // True if callers on other hosts must authenticate. Queue's thread only.
  bool AuthenticatesCallers() const;

  // Calls `done` with the caller on the queue's thread, before returning or later. `context` is only used before it
  // returns. Callers without a token have all roles.
  //   UNAUTHENTICATED    the caller sent no token or MUNGE credential, or an invalid one.
  //   PERMISSION_DENIED  its certificate has none of the allowed names, the role of its token is below `needed`, or its
  //                      MUNGE credential belongs to another user.
  //   UNAVAILABLE        the token or the MUNGE credential cannot be checked now.
  // Logs refusals, at most one line in ten seconds.
  void Check(const grpc::ServerContextBase& context, Role needed, Done done);

  // Ends pending and later checks with CANCELLED. Call it while the queue runs.
  void Stop();

 private:
  absl::Status CheckNames(const std::vector<std::string>& names) const;
  absl::Status CheckToken(const std::string& authorization, Role needed, Caller* caller);
  void CheckMunge(const std::string& authorization, const std::string& peer, Caller caller, Done done);
  // True if munge is absent on this host, so that no credential is required.
  bool MungeIsAbsent(const absl::Status& status);
  void Finish(const std::string& peer, absl::StatusOr<Caller> caller, const Done& done);

  const Credentials credentials_;
  grpc::CompletionQueue* queue_ = nullptr;
  Tokens tokens_;
  std::optional<Munge> munge_;
  std::string munge_user_;  // user of this process, the only one whose credential is accepted
  bool has_munge_ = true;   // result of the last check; queue's thread only
  RefusalLog log_;
};

// The name under which a server knows callers with its own credentials; "" if none. May read files.
std::string OwnName(const Credentials& credentials);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_SERVER_CALL_GUARD_H_
