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

// Key in a call's metadata. The value is "Bearer " and the token, or "Munge " and a MUNGE credential.
inline constexpr char kAuthorization[] = "authorization";
inline constexpr char kBearer[] = "Bearer ";
inline constexpr char kMunge[] = "Munge ";

// Authenticates a client to servers, and servers to it. Files are read again for every connection; if they can't be
// read within 0.1 s, or do not match each other, the previous contents remain in use. Thread-safe.
class ClientSecurity {
 public:
  // `host`: the server's name or address as it was configured; with TLS the server's certificate must be for it.
  // REQUIRES: CheckCredentials returned OK.
  ClientSecurity(const Credentials& credentials, const std::string& host);

  bool has_tls() const { return credentials_.has_tls(); }

  // Returns the credentials for one connection, and may add to its arguments. `host`: the server to connect to, if
  // there are several.
  std::shared_ptr<grpc::ChannelCredentials> ForChannel(grpc::ChannelArguments* arguments, const std::string& host = "");

  // Returns the value of kAuthorization for one call, empty for none; nullopt if munge must be asked for it.
  std::optional<std::string> Authorization();

  // Requests the value from munge. `done` is called on another thread, or by Stop; it receives an error if munge worked
  // before and does not now.
  // REQUIRES: Authorization() returned nullopt.
  void AskForAuthorization(std::function<void(absl::StatusOr<std::string>)> done);

  // Cancels requests to munge, as Munge::Stop does.
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

// Returns credentials for a server's listening ports. Certificates are read again within a second after they change;
// open connections are not closed. REQUIRES: CheckCredentials returned OK.
std::shared_ptr<grpc::ServerCredentials> ServerPortCredentials(const Credentials& credentials);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_WIRE_CHANNEL_SECURITY_H_
