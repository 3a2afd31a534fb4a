#ifndef DDPRUN_RENDEZVOUS_HTTP_HTTP_MESSAGE_H_
#define DDPRUN_RENDEZVOUS_HTTP_HTTP_MESSAGE_H_

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

// PURE: a request and its response as plain values.
namespace ddprun::http {

struct Request {
  std::string method;                                        // "GET"
  std::string target;                                        // as it came: "/api/v1/jobs?limit=10"
  std::vector<std::pair<std::string, std::string>> headers;  // names in lower case
  std::string body;
  std::string peer;  // the client's address without its port

  // The value of the first header of that name (lower case); empty if there is none.
  absl::string_view Header(absl::string_view name) const;
  // The value of a cookie; empty if there is none.
  std::string Cookie(absl::string_view name) const;
};

struct Response {
  int status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers = {};  // besides Content-Type and Content-Length
  // If set, the body has no end: after `body`, what this returns is sent, whenever the client has taken what was sent
  // before and the server was woken (Server::Wake). Empty: nothing for now. Called on the server's thread.
  std::function<std::string()> more = nullptr;
};

// A target in its parts, percent signs decoded.
struct Target {
  std::string path;
  std::map<std::string, std::string> query;  // the last of equal names counts

  // The value; empty if there is none.
  std::string Query(const std::string& name) const;
};

// False: it is not a path of the form "/...", or holds a malformed escape or a control character.
bool ParseTarget(absl::string_view text, Target* target);

// Decodes %XX, and '+' as a space if `form`. False: malformed.
bool DecodePercent(absl::string_view text, bool form, std::string* decoded);

// "404 Not Found"'s second part; "Error" for codes that are not used here.
absl::string_view ReasonPhrase(int status);

// The status line and all headers, with the empty line that ends them. `keep_alive`: further requests may follow. The
// length is that of the body, unless the response has no end.
std::string FormatHead(const Response& response, bool keep_alive);

// Whether a Host header ("localhost:80", "127.0.0.1", "[::1]:8080") names this machine's loopback. A page of another
// site that has its name resolved to 127.0.0.1 (DNS rebinding) shows a name of its own here. So of names only
// "localhost" counts: others that IsLoopbackHost knows may be sent to a name server by some resolvers.
bool NamesLoopback(absl::string_view host_header);

}  // namespace ddprun::http

#endif  // DDPRUN_RENDEZVOUS_HTTP_HTTP_MESSAGE_H_
