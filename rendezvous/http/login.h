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

// Who may see what the server shows: those that show a token of any role, in each request or once for a cookie.
// Cookies are known to this process only, so they end with it; and with the token that they were given for.
// Thread-compatible.
class Login {
 public:
  static constexpr absl::Duration kLifetime = absl::Hours(12);
  static constexpr size_t kMaxSessions = 1000;  // then the oldest has to log in again

  explicit Login(const rendezvous::Credentials& credentials);

  // Whether a token is asked for at all.
  bool required() const { return required_; }

  // Whether the request shows a token (Authorization: Bearer) or a cookie of Begin.
  bool Allows(const Request& request, SteadyTime now);

  // The value of a Set-Cookie header for a request that shows `token`; nullopt: it is none. `secure`: the connection is
  // encrypted.
  std::optional<std::string> Begin(const Request& request, const std::string& token, bool secure, SteadyTime now);

 private:
  struct Session {
    std::string digest;  // of the cookie
    std::string token;
    SteadyTime until;
  };

  const bool required_;
  rendezvous::Tokens tokens_;
  std::list<Session> sessions_;  // the oldest first
};

}  // namespace ddprun::http

#endif  // DDPRUN_RENDEZVOUS_HTTP_LOGIN_H_
