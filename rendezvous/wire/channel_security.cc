#include "rendezvous/wire/channel_security.h"

#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>

#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace ddprun::rendezvous {
namespace {

constexpr unsigned kRefreshSeconds = 1;

}  // namespace

ClientSecurity::ClientSecurity(const Credentials& credentials, const std::string& host)
    : credentials_(credentials), host_(host), tokens_(credentials), tls_files_(credentials) {
  if (credentials.munge) munge_.emplace(credentials.munge_socket);
}

std::shared_ptr<grpc::ChannelCredentials> ClientSecurity::ForChannel(grpc::ChannelArguments* arguments,
                                                                     const std::string& host) {
  if (!credentials_.has_tls()) return grpc::InsecureChannelCredentials();
  // Connections are made to addresses, while the certificate has the server's name.
  arguments->SetSslTargetNameOverride(host.empty() ? host_ : host);
  absl::StatusOr<TlsTexts> read = tls_files_.Read();
  MutexLock lock(&mutex_);
  if (read.ok()) texts_ = *std::move(read);
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = texts_.ca;
  options.pem_cert_chain = texts_.cert;
  options.pem_private_key = texts_.key;
  return grpc::SslCredentials(options);
}

std::optional<std::string> ClientSecurity::Authorization() {
  if (credentials_.has_token()) return absl::StrCat(kBearer, tokens_.OwnToken());
  return munge_ ? std::nullopt : std::make_optional<std::string>();
}

void ClientSecurity::AskForAuthorization(std::function<void(absl::StatusOr<std::string>)> done) {
  munge_->Encode([done = std::move(done)](const absl::StatusOr<std::string>& credential) {
    if (credential.ok()) return done(absl::StrCat(kMunge, *credential));
    // On a host without munge the server may not require it either.
    if (absl::IsFailedPrecondition(credential.status())) return done("");
    done(absl::UnavailableError(absl::StrCat("munge on this host does not answer: ", credential.status().message())));
  });
}

void ClientSecurity::Stop() {
  if (munge_) munge_->Stop();
}

std::shared_ptr<grpc::ServerCredentials> ServerPortCredentials(const Credentials& credentials) {
  if (credentials.tls_cert.empty()) return grpc::InsecureServerCredentials();
  // gRPC gives a running server new certificates only if it watches the files itself.
  auto files = std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(
      credentials.tls_key, credentials.tls_cert, credentials.tls_ca, kRefreshSeconds);
  grpc::experimental::TlsServerCredentialsOptions options(files);
  options.watch_identity_key_cert_pairs();
  if (credentials.tls_ca.empty()) {
    options.set_cert_request_type(GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE);
  } else {
    options.watch_root_certs();
    options.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  }
  return grpc::experimental::TlsServerCredentials(options);
}

}  // namespace ddprun::rendezvous
