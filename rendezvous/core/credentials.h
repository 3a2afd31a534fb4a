#ifndef DDPRUN_RENDEZVOUS_CORE_CREDENTIALS_H_
#define DDPRUN_RENDEZVOUS_CORE_CREDENTIALS_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace ddprun::rendezvous {

// Variables that give the token where no flag does.
inline constexpr char kTokenVariable[] = "DDPRUN_TOKEN";
inline constexpr char kTokenFileVariable[] = "DDPRUN_TOKEN_FILE";

// Credentials with which launchers and the rendezvous server authenticate each other (docs/security.md). If all are
// empty, neither side authenticates. Files except the token's are PEM; files are read again when they change.
struct Credentials {
  std::string token;       // the shared token itself, or
  std::string token_file;  // a file of tokens, one a line: the first is shown to the other side, all are accepted
  std::string tls_cert;    // this side's certificate chain
  std::string tls_key;     // and its key
  std::string tls_ca;      // who signs the other side's certificates
  // Names (of their certificates) that clients must have one of; empty: any that tls_ca signed.
  std::vector<std::string> tls_allowed_names;
  // Without a token: a MUNGE credential is shown to the other side, and a server that can check them serves only those
  // that are from its own user. Where munge doesn't work this has no effect.
  bool munge = false;
  std::string munge_socket;  // munged's, if it is not the usual one

  bool has_token() const { return !token.empty() || !token_file.empty(); }
  bool has_tls() const { return !tls_cert.empty() || !tls_ca.empty(); }
};

// The role of a token (docs/security.md). Each role includes the permissions of the roles before it.
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

// The caller of a server, as far as it has proved who it is.
struct Caller {
  Role role = Role::kAdmin;
  std::string name;     // of its token, or the user of its MUNGE credential; empty: it has none
  std::string address;  // the name in its certificate, else its host's address

  // For people.
  const std::string& actor() const { return name.empty() ? address : name; }
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_CREDENTIALS_H_
