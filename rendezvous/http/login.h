#ifndef DDPRUN_RENDEZVOUS_HTTP_LOGIN_H_
#define DDPRUN_RENDEZVOUS_HTTP_LOGIN_H_

#include <list>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "base/steady_time.h"
#include "rendezvous/core/credentials.h"
#include "rendezvous/http/http_message.h"
#include "rendezvous/wire/credential_files.h"

namespace ddprun::http {

// Authenticates clients by a token of any role, sent with each request or exchanged once for a cookie. Cookies are
// valid only in this process, and only as long as the token they were issued for. Thread-compatible.
class Login {
 public:
  static constexpr absl::Duration kLifetime = absl::Hours(12);
  static constexpr size_t kMaxSessions = 1000;  // beyond that the oldest session has to log in again

  explicit Login(const rendezvous::Credentials& credentials);

  // True if a token is required at all.
  bool required() const { return required_; }

  // True if the request has a valid token (Authorization: Bearer) or a cookie from Begin.
  bool Allows(const Request& request, SteadyTime now);

  // Returns the value of a Set-Cookie header for a request that sent `token`; nullopt if the token is invalid.
  // `secure`: the connection is encrypted.
  std::optional<std::string> Begin(const Request& request, const std::string& token, bool secure, SteadyTime now);

 private:
  struct Session {
    std::string digest;  // of the cookie
    std::string token;
    SteadyTime until;
  };

  const bool required_;
  rendezvous::Tokens tokens_;
  std::list<Session> sessions_;  // oldest first
};

}  // namespace ddprun::http

#endif  // DDPRUN_RENDEZVOUS_HTTP_LOGIN_H_
