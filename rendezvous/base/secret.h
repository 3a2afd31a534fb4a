#ifndef DDPRUN_RENDEZVOUS_BASE_SECRET_H_
#define DDPRUN_RENDEZVOUS_BASE_SECRET_H_

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

}  // namespace ddprun

#endif  // DDPRUN_RENDEZVOUS_BASE_SECRET_H_
