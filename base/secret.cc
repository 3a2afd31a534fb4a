#include "base/secret.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/sha.h>
#include <stdlib.h>
#include <sys/random.h>

#include "absl/strings/escaping.h"

namespace ddprun {

std::string RandomSecret() {
  std::string bytes(32, '\0');
  // Requests of up to 256 bytes are neither interrupted nor cut short (getrandom(2)).
  (void)!getrandom(bytes.data(), bytes.size(), 0);
  return bytes;
}

std::string SecretDigest(absl::string_view secret) {
  // In OpenSSL 3.0 each call of SHA256() looks up the algorithm, which takes longer than the digest.
  static const EVP_MD* const sha256 = EVP_MD_fetch(nullptr, "SHA256", nullptr);
  std::string digest(SHA256_DIGEST_LENGTH, '\0');
  EVP_Digest(secret.data(), secret.size(), reinterpret_cast<unsigned char*>(digest.data()), nullptr, sha256, nullptr);
  return digest;
}

bool SecretsEqual(absl::string_view a, absl::string_view b) {
  // Digests have equal lengths, so the time does not reveal a length either.
  const std::string x = SecretDigest(a);
  const std::string y = SecretDigest(b);
  return CRYPTO_memcmp(x.data(), y.data(), x.size()) == 0;
}

std::optional<std::string> TakeVariable(const char* name) {
  char* value = getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  std::string taken = value;
  OPENSSL_cleanse(value, taken.size());
  unsetenv(name);
  return taken;
}

std::string ShownId(absl::string_view node_id) {
  return absl::BytesToHexString(absl::string_view(SecretDigest(node_id)).substr(0, 6));
}

}  // namespace ddprun
