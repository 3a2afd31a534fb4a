#ifndef DDPRUN_RENDEZVOUS_CORE_CREDENTIALS_H_
#define DDPRUN_RENDEZVOUS_CORE_CREDENTIALS_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace ddprun::rendezvous {

// Environment variables with the token, or the file of tokens, which are used if no flag gives one.
inline constexpr char kTokenVariable[] = "DDPRUN_TOKEN";
inline constexpr char kTokenFileVariable[] = "DDPRUN_TOKEN_FILE";

// Credentials with which launchers and the rendezvous server authenticate each other (docs/security.md). If all fields
// are empty, neither side authenticates. TLS files are PEM. All files are read again when they change.
struct Credentials {
  std::string token;       // shared token
  std::string token_file;  // instead of `token`, a file with one token per line: sends the first, accepts all
  std::string tls_cert;    // file with this side's certificate chain
  std::string tls_key;     // file with the private key of tls_cert
  std::string tls_ca;      // file with the CA certificates that sign the other side's certificates
  // Certificate names that the server accepts from clients; empty: it accepts any certificate that tls_ca signed.
  std::vector<std::string> tls_allowed_names;
  // True to use MUNGE if there is no token: each side sends a MUNGE credential, and the server serves only its own
  // user. No effect on hosts where munged does not run.
  bool munge = false;
  std::string munge_socket;  // socket of munged; empty: munge's default

  bool has_token() const { return !token.empty() || !token_file.empty(); }
  bool has_tls() const { return !tls_cert.empty() || !tls_ca.empty(); }
};

// Permissions that a token grants (docs/security.md). Each role includes the permissions of the roles before it.
enum class Role { kRead, kLauncher, kAdmin };
inline constexpr Role kRoles[] = {Role::kRead, Role::kLauncher, Role::kAdmin};

inline absl::string_view Name(Role role) {
  switch (role) {
    case Role::kRead: return "read";
    case Role::kLauncher: return "launcher";
    case Role::kAdmin: return "admin";
  }
  return "unknown";
}

// An authenticated caller of the server.
struct Caller {
  Role role = Role::kAdmin;
  std::string name;     // name of the token, or user of the MUNGE credential; empty: the caller sent neither
  std::string address;  // name in the client certificate, or the IP address if there is no certificate

  // Returns the caller's name for events and messages, e.g. "stopped by alice".
  const std::string& actor() const { return name.empty() ? address : name; }
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_CREDENTIALS_H_
