#ifndef DDPRUN_RENDEZVOUS_WIRE_CHANNEL_SECURITY_H_
#define DDPRUN_RENDEZVOUS_WIRE_CHANNEL_SECURITY_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "rendezvous/base/mutex.h"
#include "rendezvous/core/credentials.h"
#include "rendezvous/wire/credential_files.h"

namespace ddprun::rendezvous {

// In a call's metadata: "Bearer " and the token.
inline constexpr char kAuthorization[] = "authorization";
inline constexpr char kBearer[] = "Bearer ";

// How a client proves who it is, and whom it believes. Thread-safe. Files are read anew for every connection; while
// they can't be read, or don't fit each other, what was read before goes on to be used.
class ClientSecurity {
 public:
  // `host`: the server's name or address as it was given; with TLS the server's certificate must be for it.
  ClientSecurity(const Credentials& credentials, const std::string& host);

  bool has_tls() const { return credentials_.has_tls(); }

  // Credentials for one connection; may add to its arguments.
  std::shared_ptr<grpc::ChannelCredentials> ForChannel(grpc::ChannelArguments* arguments);

  // Shows the token, if there is one, in a call that is about to begin.
  void ShowToken(grpc::ClientContext* context);

 private:
  const Credentials credentials_;
  const std::string host_;
  Tokens tokens_;
  Mutex mutex_;
  TlsTexts texts_ ABSL_GUARDED_BY(mutex_);
};

// For a server's listening ports. REQUIRES: CheckCredentials found no fault. Certificates are read again within a second
// after they change; connections that stand are not ended.
std::shared_ptr<grpc::ServerCredentials> ServerPortCredentials(const Credentials& credentials);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_WIRE_CHANNEL_SECURITY_H_
