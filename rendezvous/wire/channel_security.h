#ifndef DDPRUN_RENDEZVOUS_WIRE_CHANNEL_SECURITY_H_
#define DDPRUN_RENDEZVOUS_WIRE_CHANNEL_SECURITY_H_

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "rendezvous/core/credentials.h"
#include "rendezvous/wire/credential_files.h"
#include "rendezvous/wire/munge.h"

namespace ddprun::rendezvous {

// In a call's metadata: "Bearer " and the token, or "Munge " and a MUNGE credential.
inline constexpr char kAuthorization[] = "authorization";
inline constexpr char kBearer[] = "Bearer ";
inline constexpr char kMunge[] = "Munge ";

// How a client proves who it is, and whom it believes. Thread-safe. Files are read anew for every connection; while
// they can't be read within 0.1 s, or don't fit each other, what was read before goes on to be used.
class ClientSecurity {
 public:
  // REQUIRES: CheckCredentials found no fault. `host`: the server's name or address as it was given; with TLS the
  // server's certificate must be for it.
  ClientSecurity(const Credentials& credentials, const std::string& host);

  bool has_tls() const { return credentials_.has_tls(); }

  // Credentials for one connection; may add to its arguments. `host`: which server it is to, if there are several.
  std::shared_ptr<grpc::ChannelCredentials> ForChannel(grpc::ChannelArguments* arguments, const std::string& host = "");

  // The value of kAuthorization for one call, empty for none; nullopt if it has to be asked for.
  std::optional<std::string> Authorization();

  // The same from munge; `done` is called on another thread, or by Stop. An error: munge worked before and does not
  // now.
  // REQUIRES: Authorization() gave nullopt.
  void AskForAuthorization(std::function<void(absl::StatusOr<std::string>)> done);

  // As Munge::Stop.
  void Stop();

 private:
  const Credentials credentials_;
  const std::string host_;
  Tokens tokens_;
  std::optional<Munge> munge_;
  TlsFiles tls_files_;
  Mutex mutex_;
  TlsTexts texts_ ABSL_GUARDED_BY(mutex_);
};

// For a server's listening ports. REQUIRES: CheckCredentials found no fault. Certificates are read again within a
// second after they change; connections that stand are not ended.
std::shared_ptr<grpc::ServerCredentials> ServerPortCredentials(const Credentials& credentials);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_WIRE_CHANNEL_SECURITY_H_
