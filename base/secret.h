#ifndef DDPRUN_BASE_SECRET_H_
#define DDPRUN_BASE_SECRET_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

// Shared secrets. Thread-safe.
namespace ddprun {

// Returns 32 random bytes from the kernel.
std::string RandomSecret();

// Returns the SHA-256 digest, for storing instead of a secret that only needs to be recognized. REQUIRES: the secret is
// random, not a password.
std::string SecretDigest(absl::string_view secret);

// Constant-time comparison.
bool SecretsEqual(absl::string_view a, absl::string_view b);

// Removes a variable from this process's environment and wipes it there, so that neither children nor /proc/PID/environ
// show it. nullopt: it is unset or empty. Call before other threads exist.
std::optional<std::string> TakeVariable(const char* name);

// Returns a stable, unique stand-in for a node's id that may be displayed, because it can't be used to join.
std::string ShownId(absl::string_view node_id);

}  // namespace ddprun

#endif  // DDPRUN_BASE_SECRET_H_
