#include "rendezvous/http/login.h"

#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/secret.h"

namespace ddprun::http {
namespace {

// A browser shares cookies of one name among all ports of a host, and "localhost" can be several servers (`ssh -L`), so
// the name includes the port that the browser uses.
std::string CookieName(const Request& request) {
  const std::string host(request.Header("host"));
  const std::string port = host.substr(host.rfind(':') + 1);
  const bool is_port = !port.empty() && port.size() < host.size() && port.find_first_not_of("0123456789") == port.npos;
  return absl::StrCat("ddprun_session", is_port ? "_" : "", is_port ? port : "");
}

}  // namespace

Login::Login(const rendezvous::Credentials& credentials) : required_(credentials.has_token()), tokens_(credentials) {}

bool Login::Allows(const Request& request, SteadyTime now) {
  if (!required_) return true;
  const std::string authorization(request.Header("authorization"));
  if (const auto token = rendezvous::BearerToken(authorization)) return tokens_.Accept(*token).has_value();
  const std::string cookie = request.Cookie(CookieName(request));
  if (cookie.empty()) return false;
  while (!sessions_.empty() && sessions_.front().until <= now) sessions_.pop_front();
  const std::string digest = SecretDigest(cookie);
  for (const Session& session : sessions_) {
    // A client cannot guess the cookie's digest, so an early exit of the comparison reveals nothing.
    if (session.digest == digest) return tokens_.Accept(session.token).has_value();
  }
  return false;
}

std::optional<std::string> Login::Begin(const Request& request, const std::string& token, bool secure, SteadyTime now) {
  if (!required_ || !tokens_.Accept(token)) return std::nullopt;
  const std::string cookie = absl::BytesToHexString(RandomSecret());
  sessions_.push_back({SecretDigest(cookie), token, now + kLifetime});
  if (sessions_.size() > kMaxSessions) sessions_.pop_front();
  return absl::StrCat(CookieName(request), "=", cookie, "; Path=/; Max-Age=", absl::ToInt64Seconds(kLifetime),
                      "; HttpOnly; SameSite=Strict", secure ? "; Secure" : "");
}

}  // namespace ddprun::http
