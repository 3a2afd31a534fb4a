#ifndef DDPRUN_BASE_SECRET_H_
#define DDPRUN_BASE_SECRET_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

// Secrets that two sides share. Thread-safe.
namespace ddprun {

// 32 bytes from the kernel.
std::string RandomSecret();

// SHA-256: to be kept instead of a secret that only has to be recognised. REQUIRES: the secret is random, not a word.
std::string SecretDigest(absl::string_view secret);

// In a time that does not tell where they differ.
bool SecretsEqual(absl::string_view a, absl::string_view b);

// Takes a variable out of this process's environment and wipes it there, so that neither children nor
// /proc/PID/environ show it. nullopt: it is not set, or empty. Call before other threads exist.
std::optional<std::string> TakeVariable(const char* name);

}  // namespace ddprun

#endif  // DDPRUN_BASE_SECRET_H_
