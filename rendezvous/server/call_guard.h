#ifndef DDPRUN_RENDEZVOUS_SERVER_CALL_GUARD_H_
#define DDPRUN_RENDEZVOUS_SERVER_CALL_GUARD_H_

#include <grpcpp/grpcpp.h>

#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "rendezvous/base/mutex.h"
#include "rendezvous/base/steady_time.h"
#include "rendezvous/core/credentials.h"
#include "rendezvous/wire/credential_files.h"

namespace ddprun::rendezvous {

// Decides for each call, when it begins, whether its caller may make it. Thread-safe.
class CallGuard {
 public:
  explicit CallGuard(const Credentials& credentials) : credentials_(credentials), tokens_(credentials) {}

  // Whether there are calls that it would not let pass on a connection that stands.
  bool demanding() const { return credentials_.has_token() || !credentials_.tls_allowed_names.empty(); }

  //   UNAUTHENTICATED    the caller shows no token, or a wrong one.
  //   PERMISSION_DENIED  its certificate has none of the allowed names.
  // Logs refusals, at most one line in ten seconds.
  absl::Status Check(const grpc::ServerContextBase& context);

 private:
  absl::Status Decide(const grpc::ServerContextBase& context);
  void LogRefusal(const std::string& peer, const absl::Status& why);

  const Credentials credentials_;
  Tokens tokens_;
  Mutex mutex_;
  SteadyTime next_line_ ABSL_GUARDED_BY(mutex_) = SteadyTime::InfinitePast();
  int unlogged_ ABSL_GUARDED_BY(mutex_) = 0;
};

// The address without its port, in one of gRPC's names of peers: "10.0.0.1" of "ipv4:10.0.0.1:4711", and the same of
// "ipv6:%5B::ffff:10.0.0.1%5D:4711".
std::string AddressOfPeer(const std::string& peer);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_SERVER_CALL_GUARD_H_
