#ifndef DDPRUN_RENDEZVOUS_SERVER_CALL_GUARD_H_
#define DDPRUN_RENDEZVOUS_SERVER_CALL_GUARD_H_

#include <grpcpp/grpcpp.h>

#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "rendezvous/core/credentials.h"
#include "rendezvous/server/refusal_log.h"
#include "rendezvous/wire/credential_files.h"
#include "rendezvous/wire/munge.h"

namespace ddprun::rendezvous {

// Decides for each call, when it begins, whether its caller may make it. Thread-safe.
class CallGuard {
 public:
  using Done = std::function<void(absl::Status)>;

  explicit CallGuard(const Credentials& credentials);

  // To be called once, before Check. The queue's thread is where all calls are served.
  void Start(grpc::CompletionQueue* queue) { queue_ = queue; }

  // Whether there are calls that it would not let pass on a connection that stands.
  bool demanding() const;

  // Whether callers on other hosts have to prove who they are. On the queue's thread.
  bool checks_callers() const;

  // Who makes a call that was let pass, for people: the name in its certificate, the user of its MUNGE credential, or
  // the address that it comes from. On the queue's thread.
  std::string ActorOf(const grpc::ServerContextBase& context) const;

  // Calls `done` on the queue's thread, before it returns or later. `context` is used before it returns only.
  //   UNAUTHENTICATED    the caller shows no token or MUNGE credential, or a wrong one.
  //   PERMISSION_DENIED  its certificate has none of the allowed names, or its MUNGE credential is another user's.
  //   UNAVAILABLE        the token or the MUNGE credential can't be checked now.
  // Logs refusals, at most one line in ten seconds.
  void Check(const grpc::ServerContextBase& context, Done done);

  // Ends the checks that are under way, and later ones, with CANCELLED. To be called while the queue runs.
  void Stop();

 private:
  absl::Status CheckName(const grpc::ServerContextBase& context) const;
  absl::Status CheckToken(const std::string& authorization);
  void CheckMunge(const std::string& authorization, const std::string& peer, Done done);
  // True: nobody has to show a MUNGE credential, as there is no munge on this host.
  bool PassWithoutMunge(const absl::Status& status);
  void Finish(const std::string& peer, const absl::Status& status, const Done& done);

  const Credentials credentials_;
  grpc::CompletionQueue* queue_ = nullptr;
  Tokens tokens_;
  std::optional<Munge> munge_;
  bool has_munge_ = true;  // of the queue's thread; as the last check found
  RefusalLog log_;
};

// The address without its port, in one of gRPC's names of peers: "10.0.0.1" of "ipv4:10.0.0.1:4711", and the same of
// "ipv6:%5B::ffff:10.0.0.1%5D:4711".
std::string AddressOfPeer(const std::string& peer);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_SERVER_CALL_GUARD_H_
