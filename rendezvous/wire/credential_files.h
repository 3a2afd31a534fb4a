#ifndef DDPRUN_RENDEZVOUS_WIRE_CREDENTIAL_FILES_H_
#define DDPRUN_RENDEZVOUS_WIRE_CREDENTIAL_FILES_H_

#include <sys/types.h>

#include <ctime>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "rendezvous/base/mutex.h"
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

// The tokens of Credentials. Thread-safe. Looks at the file whenever it is asked, and reads it if it has changed; what
// can't be read, or is no token, leaves the tokens as they are.
class Tokens {
 public:
  explicit Tokens(const Credentials& credentials);

  // What to show to the other side.
  std::string ToShow();

  // Whether the other side shows one of them, in a time that does not tell how near it comes.
  bool Accept(absl::string_view shown);

 private:
  // What tells that a file has changed.
  struct Stamp {
    ino_t inode = 0;
    off_t size = -1;
    timespec changed{};
    bool operator==(const Stamp& other) const {
      return inode == other.inode && size == other.size && changed.tv_sec == other.changed.tv_sec &&
             changed.tv_nsec == other.changed.tv_nsec;
    }
  };

  void RefreshLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string file_;
  Mutex mutex_;
  Stamp stamp_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> tokens_ ABSL_GUARDED_BY(mutex_);
};

// The PEM texts of this side.
struct TlsTexts {
  std::string cert;
  std::string key;
  std::string ca;

  friend bool operator==(const TlsTexts&, const TlsTexts&) = default;
};

// As CheckCredentials, but does not look at dates. Texts that are those of `known` are not parsed again: OpenSSL takes
// milliseconds for it.
absl::StatusOr<TlsTexts> ReadTls(const Credentials& credentials, const TlsTexts& known);

// Whatever is there; what can't be read is empty.
TlsTexts ReadTlsUnchecked(const Credentials& credentials);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_WIRE_CREDENTIAL_FILES_H_
