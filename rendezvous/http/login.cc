#include "rendezvous/http/login.h"

#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "rendezvous/base/secret.h"

namespace ddprun::http {
namespace {

constexpr char kCookie[] = "ddprun_session";

}  // namespace

Login::Login(const rendezvous::Credentials& credentials) : required_(credentials.has_token()), tokens_(credentials) {}

bool Login::Allows(const Request& request, SteadyTime now) {
  if (!required_) return true;
  absl::string_view shown = request.Header("authorization");
  if (absl::ConsumePrefix(&shown, "Bearer ")) return tokens_.Accept(shown);
  const std::string cookie = request.Cookie(kCookie);
  if (cookie.empty()) return false;
  while (!sessions_.empty() && sessions_.front().until <= now) sessions_.pop_front();
  const std::string digest = SecretDigest(cookie);
  for (const Session& session : sessions_) {
    // Digests of what a stranger can't guess: comparing them plainly tells nothing.
    if (session.digest == digest) return tokens_.Accept(session.token);
  }
  return false;
}

std::optional<std::string> Login::Begin(const std::string& token, bool secure, SteadyTime now) {
  if (!required_ || !tokens_.Accept(token)) return std::nullopt;
  const std::string cookie = absl::BytesToHexString(RandomSecret());
  sessions_.push_back({SecretDigest(cookie), token, now + kLifetime});
  if (sessions_.size() > kMaxSessions) sessions_.pop_front();
  return absl::StrCat(kCookie, "=", cookie, "; Path=/; Max-Age=", absl::ToInt64Seconds(kLifetime),
                      "; HttpOnly; SameSite=Strict", secure ? "; Secure" : "");
}

}  // namespace ddprun::http
