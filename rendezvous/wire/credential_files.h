#ifndef DDPRUN_RENDEZVOUS_WIRE_CREDENTIAL_FILES_H_
#define DDPRUN_RENDEZVOUS_WIRE_CREDENTIAL_FILES_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/file_snapshot.h"
#include "rendezvous/core/credentials.h"

namespace ddprun::rendezvous {

// The side of a connection that uses the credentials.
enum class CredentialSide {
  kServer,
  kClient,
  kBoth,  // a launcher that may host the server
};

// Sets the token from DDPRUN_TOKEN, or else from DDPRUN_TOKEN_FILE, unless a flag has set it. Removes both variables
// from the environment. Call before other threads exist.
void TakeTokenFromEnvironment(Credentials* credentials);

// Reads all files once, so that errors are reported at the start. `warnings`: one line for each secret that other users
// of this host can read.
//   INVALID_ARGUMENT  a file can't be read, is malformed, does not match another one, or is missing.
absl::Status CheckCredentials(const Credentials& credentials, CredentialSide side, std::vector<std::string>* warnings);

// Returns the token of an authorization "Bearer TOKEN", with the scheme in upper or lower case (RFC 9110, 11.1);
// nullopt if it has another scheme.
std::optional<absl::string_view> BearerToken(absl::string_view authorization);

// A token and its holder: the role and the name in its line of the file. The holder of a line without them is an admin.
struct Token {
  std::string secret;
  Caller holder;
};

// The tokens of Credentials. Each call reads the file if it has changed; an invalid file leaves the tokens unchanged
// and is logged once. While the file system stalls, calls use the tokens that were read last (base/file_snapshot.h).
// Thread-safe.
class Tokens {
 public:
  explicit Tokens(const Credentials& credentials);

  // Returns the token with which this side authenticates itself; empty: it has none.
  std::string OwnToken();

  // Returns the holder of the token that the other side sent. Compares it with all tokens in constant time.
  //   UNAUTHENTICATED  the token is unknown.
  //   UNAVAILABLE      the token is not among those that were read last, and the file can't be read now.
  absl::StatusOr<Caller> Check(absl::string_view shown);
  std::optional<Caller> Accept(absl::string_view shown);

 private:
  const std::string file_;
  FileSnapshot<std::vector<Token>> tokens_;
};

// Certificate, private key and CA of this side, in PEM.
struct TlsTexts {
  std::string cert;
  std::string key;
  std::string ca;

  friend bool operator==(const TlsTexts&, const TlsTexts&) = default;
};

// The TLS files of Credentials. Each call reads them, but like Tokens it does not wait for a file system that stalls.
// Thread-safe.
class TlsFiles {
 public:
  explicit TlsFiles(const Credentials& credentials);

  // Returns the errors of CheckCredentials, but accepts expired certificates.
  absl::StatusOr<TlsTexts> Read() { return texts_.Get().value; }

 private:
  FileSnapshot<absl::StatusOr<TlsTexts>> texts_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_WIRE_CREDENTIAL_FILES_H_
