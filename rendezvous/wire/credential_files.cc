#include "rendezvous/wire/credential_files.h"

#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/log.h"
#include "base/secret.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "rendezvous/core/limits.h"

namespace ddprun::rendezvous {
namespace {

constexpr size_t kMinTokenBytes = 16;
constexpr size_t kMaxTokenBytes = 4096;
constexpr size_t kMaxFileBytes = 1 << 20;

struct FreeOpenSsl {
  void operator()(BIO* bio) const { BIO_free(bio); }
  void operator()(X509* cert) const { X509_free(cert); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};
template <typename T>
using OpenSsl = std::unique_ptr<T, FreeOpenSsl>;

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  struct stat entry;
  if (stat(path.c_str(), &entry) == 0 && S_ISDIR(entry.st_mode)) {  // ifstream would throw
    return absl::InvalidArgumentError(absl::StrCat("can't read ", path, ": ", strerror(EISDIR)));
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::InvalidArgumentError(absl::StrCat("can't read ", path, ": ", strerror(errno)));
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (file.bad()) return absl::InvalidArgumentError(absl::StrCat("can't read ", path));
  if (text.size() > kMaxFileBytes) return absl::InvalidArgumentError(absl::StrCat(path, " is larger than 1 MiB"));
  return text;
}

// The error's text does not contain the token.
absl::Status CheckToken(absl::string_view token, const std::string& where) {
  if (token.size() < kMinTokenBytes || token.size() > kMaxTokenBytes) {
    return absl::InvalidArgumentError(absl::StrCat(where, ": a token has ", token.size(), " characters; it must have ",
                                                   kMinTokenBytes, " to ", kMaxTokenBytes));
  }
  if (!std::all_of(token.begin(), token.end(), [](char c) { return absl::ascii_isgraph(c); })) {
    return absl::InvalidArgumentError(absl::StrCat(where, ": a token must be printable ASCII without spaces"));
  }
  return absl::OkStatus();
}

// Parses a line of the token file: TOKEN or ROLE:NAME TOKEN.
absl::StatusOr<Token> ParseToken(absl::string_view line, const std::string& where) {
  const std::vector<absl::string_view> words = absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
  Token token{.secret = std::string(words.back())};
  if (words.size() > 1) {
    const std::pair<absl::string_view, absl::string_view> holder = absl::StrSplit(words[0], absl::MaxSplits(':', 1));
    const auto* const role =
        std::find_if(std::begin(kRoles), std::end(kRoles), [&](Role known) { return Name(known) == holder.first; });
    token.holder.name = std::string(holder.second);
    const bool is_name = std::all_of(token.holder.name.begin(), token.holder.name.end(),
                                     [](char c) { return absl::ascii_isalnum(c) || c == '.' || c == '_' || c == '-'; });
    if (words.size() > 2 || role == std::end(kRoles) || token.holder.name.empty() || !is_name ||
        token.holder.name.size() > kMaxNameBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat(where,
                       ": a line must be TOKEN or ROLE:NAME TOKEN, where ROLE is read, launcher or admin and "
                       "NAME has letters, digits and ._- only"));
    }
    token.holder.role = *role;
  }
  DDPRUN_RETURN_IF_ERROR(CheckToken(token.secret, where));
  return token;
}

absl::StatusOr<std::vector<Token>> ReadTokens(const std::string& path) {
  DDPRUN_ASSIGN_OR_RETURN(std::string text, ReadFile(path));
  std::vector<Token> tokens;
  std::set<std::string> secrets;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    const std::string where = absl::StrCat(path, ":", ++number);
    line = absl::StripAsciiWhitespace(line);
    if (line.empty()) continue;
    DDPRUN_ASSIGN_OR_RETURN(Token token, ParseToken(line, where));
    if (!secrets.insert(token.secret).second) {
      return absl::InvalidArgumentError(absl::StrCat(where, ": the token is in a line before; remove one of the two"));
    }
    tokens.push_back(std::move(token));
  }
  if (tokens.empty()) return absl::InvalidArgumentError(absl::StrCat("no token in ", path));
  return tokens;
}

bool SameFile(const struct stat& a, const struct stat& b) {
  return a.st_ino == b.st_ino && a.st_size == b.st_size && a.st_mtim.tv_sec == b.st_mtim.tv_sec &&
         a.st_mtim.tv_nsec == b.st_mtim.tv_nsec;
}

// Returns a function that reads the file if it has changed.
std::function<void(std::vector<Token>*)> TokenReader(const std::string& path) {
  if (path.empty()) return nullptr;
  // `used`: the file whose tokens are in use. `logged`: the last invalid file that was logged.
  struct stat none = {};
  return [path, used = none, logged = none](std::vector<Token>* tokens) mutable {
    struct stat now;
    if (stat(path.c_str(), &now) != 0 || SameFile(now, used)) return;
    absl::StatusOr<std::vector<Token>> read = ReadTokens(path);
    if (read.ok()) {
      *tokens = *std::move(read);
      used = now;
    } else if (!SameFile(now, logged)) {
      Log(LogLevel::kWarning, absl::StrCat(read.status().message(), "; the tokens that were read before remain valid"));
      logged = now;
    }
  };
}

std::vector<Token> GivenTokens(const Credentials& credentials) {
  if (!credentials.token_file.empty() || credentials.token.empty()) return {};
  return {Token{credentials.token, {}}};
}

void WarnIfReadable(const std::string& path, std::vector<std::string>* warnings) {
  struct stat file;
  if (stat(path.c_str(), &file) != 0 || (file.st_mode & (S_IRGRP | S_IROTH)) == 0) return;
  warnings->push_back(absl::StrFormat("other users can read %s (mode %04o); chmod 600 it", path,
                                      static_cast<unsigned>(file.st_mode & 07777)));
}

OpenSsl<BIO> Memory(const std::string& text) {
  return OpenSsl<BIO>(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

OpenSsl<X509> ParseCertificate(const std::string& text) {
  return OpenSsl<X509>(PEM_read_bio_X509(Memory(text).get(), nullptr, nullptr, nullptr));
}

// Passed to OpenSSL, so that it does not prompt for the password of an encrypted key.
int NoPassword(char*, int, int, void*) { return -1; }

// Sets `expired` if this side's certificate has expired.
absl::Status CheckTls(const TlsTexts& texts, const Credentials& paths, bool* expired) {
  *expired = false;
  if (!texts.cert.empty()) {
    const OpenSsl<X509> cert = ParseCertificate(texts.cert);
    if (cert == nullptr) return absl::InvalidArgumentError(absl::StrCat("no PEM certificate in ", paths.tls_cert));
    const OpenSsl<EVP_PKEY> key(PEM_read_bio_PrivateKey(Memory(texts.key).get(), nullptr, NoPassword, nullptr));
    if (key == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("no unencrypted PEM private key in ", paths.tls_key));
    }
    if (X509_check_private_key(cert.get(), key.get()) != 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("private key ", paths.tls_key, " does not match certificate ", paths.tls_cert));
    }
    *expired = X509_cmp_current_time(X509_get0_notAfter(cert.get())) < 0;
  }
  if (!texts.ca.empty() && ParseCertificate(texts.ca) == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("no PEM certificate in ", paths.tls_ca));
  }
  return absl::OkStatus();
}

absl::StatusOr<TlsTexts> ReadTlsFiles(const Credentials& credentials) {
  TlsTexts texts;
  for (const auto& [path, text] :
       {std::pair(&credentials.tls_cert, &texts.cert), std::pair(&credentials.tls_key, &texts.key),
        std::pair(&credentials.tls_ca, &texts.ca)}) {
    if (path->empty()) continue;
    DDPRUN_ASSIGN_OR_RETURN(*text, ReadFile(*path));
  }
  return texts;
}

// Unchanged texts are not parsed again, which would take OpenSSL milliseconds.
std::function<void(absl::StatusOr<TlsTexts>*)> TlsReader(const Credentials& credentials) {
  if (!credentials.has_tls()) return nullptr;
  return [credentials, known = TlsTexts()](absl::StatusOr<TlsTexts>* texts) mutable {
    *texts = ReadTlsFiles(credentials);
    if (!texts->ok() || **texts == known) return;
    bool expired = false;
    if (absl::Status status = CheckTls(**texts, credentials, &expired); !status.ok()) {
      *texts = status;
    } else {
      known = **texts;
    }
    // Frees OpenSSL's state of this thread, which would leak if the process exits before the thread ends.
    OPENSSL_thread_stop();
  };
}

absl::Status CheckParts(const Credentials& credentials, CredentialSide side) {
  if (credentials.tls_cert.empty() != credentials.tls_key.empty()) {
    return absl::InvalidArgumentError("--tls-cert and --tls-key must be given together");
  }
  if (!credentials.tls_allowed_names.empty() && (credentials.tls_cert.empty() || credentials.tls_ca.empty())) {
    return absl::InvalidArgumentError("--tls-allowed-names requires --tls-cert, --tls-key and --tls-ca");
  }
  if (!credentials.has_tls()) return absl::OkStatus();
  if (side != CredentialSide::kServer && credentials.tls_ca.empty()) {
    return absl::InvalidArgumentError("--tls-cert requires --tls-ca (the CA that signed the server's certificate)");
  }
  if (side != CredentialSide::kClient && credentials.tls_cert.empty()) {
    return absl::InvalidArgumentError(
        "--tls-ca requires --tls-cert and --tls-key on the host of the rendezvous server");
  }
  return absl::OkStatus();
}

}  // namespace

void TakeTokenFromEnvironment(Credentials* credentials) {
  const std::optional<std::string> token = TakeVariable(kTokenVariable);
  const std::string token_file(TrimValue(TakeVariable(kTokenFileVariable).value_or("")));
  if (!credentials->token_file.empty()) return;
  credentials->token = std::string(absl::StripAsciiWhitespace(token.value_or("")));
  if (token) return;
  const char* const home = getenv("HOME");
  credentials->token_file = ExpandHome(token_file, home == nullptr ? "" : home).value_or(token_file);
}

absl::Status CheckCredentials(const Credentials& credentials, CredentialSide side, std::vector<std::string>* warnings) {
  DDPRUN_RETURN_IF_ERROR(CheckParts(credentials, side));
  if (!credentials.token_file.empty()) {
    DDPRUN_RETURN_IF_ERROR(ReadTokens(credentials.token_file).status());
    WarnIfReadable(credentials.token_file, warnings);
  } else if (!credentials.token.empty()) {
    DDPRUN_RETURN_IF_ERROR(CheckToken(credentials.token, "DDPRUN_TOKEN"));
  }
  if (!credentials.tls_key.empty()) WarnIfReadable(credentials.tls_key, warnings);
  DDPRUN_ASSIGN_OR_RETURN(const TlsTexts tls, ReadTlsFiles(credentials));
  bool expired = false;
  DDPRUN_RETURN_IF_ERROR(CheckTls(tls, credentials, &expired));
  if (expired) {
    return absl::InvalidArgumentError(absl::StrCat("the certificate in ", credentials.tls_cert, " has expired"));
  }
  return absl::OkStatus();
}

std::optional<absl::string_view> BearerToken(absl::string_view authorization) {
  constexpr absl::string_view kScheme = "bearer ";
  if (!absl::StartsWithIgnoreCase(authorization, kScheme)) return std::nullopt;
  return authorization.substr(kScheme.size());
}

Tokens::Tokens(const Credentials& credentials)
    : file_(credentials.token_file), tokens_(GivenTokens(credentials), TokenReader(file_)) {}

TlsFiles::TlsFiles(const Credentials& credentials) : texts_(TlsTexts(), TlsReader(credentials)) {}

std::string Tokens::OwnToken() {
  const std::vector<Token> tokens = tokens_.Get().value;
  return tokens.empty() ? "" : tokens.front().secret;
}

absl::StatusOr<Caller> Tokens::Check(absl::string_view shown) {
  const auto [tokens, current] = tokens_.Get();
  std::optional<Caller> holder;
  for (const Token& token : tokens) {
    if (SecretsEqual(token.secret, shown)) holder = token.holder;
  }
  if (holder.has_value()) return *std::move(holder);
  if (current) return absl::UnauthenticatedError("invalid token");
  return absl::UnavailableError(absl::StrCat("can't check the token: the file system of ", file_, " does not answer"));
}

std::optional<Caller> Tokens::Accept(absl::string_view shown) {
  absl::StatusOr<Caller> holder = Check(shown);
  if (!holder.ok()) return std::nullopt;
  return *std::move(holder);
}

}  // namespace ddprun::rendezvous
