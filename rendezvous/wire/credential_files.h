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

// Which side of a connection the credentials are for.
enum class CredentialSide {
  kServer,
  kClient,
  kBoth,  // a launcher that may host the server
};

// Where no flag gives a token: DDPRUN_TOKEN, or else DDPRUN_TOKEN_FILE. Takes both out of the environment. Call before
// other threads exist.
void TakeTokenFromEnvironment(Credentials* credentials);

// Reads everything once, so that what is wrong is said before anything begins. `warnings`: one line for each secret
// that other users of this host can read.
//   INVALID_ARGUMENT  a file can't be read, holds nothing of use, or does not fit another one; something is missing.
absl::Status CheckCredentials(const Credentials& credentials, CredentialSide side, std::vector<std::string>* warnings);

// The token in an authorization "Bearer TOKEN", with the scheme in upper or lower case (RFC 9110, 11.1). nullopt: it
// has another scheme.
std::optional<absl::string_view> BearerToken(absl::string_view authorization);

// A token, and who has it: the role and the name in its line of the file. A line without them is an admin's.
struct Token {
  std::string secret;
  Caller holder;
};

// The tokens of Credentials. Thread-safe. Looks at the file whenever it is asked, and reads it if it has changed; a
// file that can't be used leaves the tokens as they are, and is logged once. Does not wait for a file system that
// stalls: the tokens that were read last are used (base/file_snapshot.h).
class Tokens {
 public:
  explicit Tokens(const Credentials& credentials);

  // What to show to the other side.
  std::string ToShow();

  // Who has the token that the other side shows. Compares it with all of them in constant time.
  //   UNAUTHENTICATED  it is none of them.
  //   UNAVAILABLE      it is none of the tokens that were read last, and the file can't be read now.
  absl::StatusOr<Caller> Check(absl::string_view shown);
  std::optional<Caller> Accept(absl::string_view shown);

 private:
  const std::string file_;
  FileSnapshot<std::vector<Token>> tokens_;
};

// The PEM texts of this side.
struct TlsTexts {
  std::string cert;
  std::string key;
  std::string ca;

  friend bool operator==(const TlsTexts&, const TlsTexts&) = default;
};

// The TLS files of Credentials. Thread-safe. Reads them whenever it is asked, but does not wait for a file system that
// stalls, as Tokens.
class TlsFiles {
 public:
  explicit TlsFiles(const Credentials& credentials);

  // As CheckCredentials, but does not look at dates.
  absl::StatusOr<TlsTexts> Read() { return texts_.Get().value; }

 private:
  FileSnapshot<absl::StatusOr<TlsTexts>> texts_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_WIRE_CREDENTIAL_FILES_H_
