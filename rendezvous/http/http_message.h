#ifndef DDPRUN_RENDEZVOUS_HTTP_HTTP_MESSAGE_H_
#define DDPRUN_RENDEZVOUS_HTTP_HTTP_MESSAGE_H_

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

// PURE: HTTP requests and responses as plain values.
namespace ddprun::http {

struct Request {
  std::string method;                                        // "GET"
  std::string target;                                        // target as received: "/api/v1/jobs?limit=10"
  std::vector<std::pair<std::string, std::string>> headers;  // names in lower case
  std::string body;
  std::string peer;  // the client's address without its port
  int peer_port = 0;
  std::string own;  // this end of the connection
  int own_port = 0;

  // Returns the value of the first header of that name (lower case); empty if there is none.
  absl::string_view Header(absl::string_view name) const;
  // Returns the value of a cookie; empty if there is none.
  std::string Cookie(absl::string_view name) const;
};

struct Response {
  int status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers = {};  // besides Content-Type and Content-Length
  // If set, the body is endless: after `body`, the results of this function are sent. It is called on the server's
  // thread, whenever the client has taken the previous part and the server was woken (Server::Wake). Empty: nothing for
  // now.
  std::function<std::string()> more = nullptr;
  bool ends = false;  // the body is not endless: it ends after the first result of `more` that is not empty
};

// The components of a target, percent-decoded.
struct Target {
  std::string path;
  std::map<std::string, std::string> query;  // the last of equal names wins

  // Returns the value; empty if there is none.
  std::string Query(const std::string& name) const;
};

// Returns false if `text` is not a path of the form "/...", or has a malformed escape or a control character.
bool ParseTarget(absl::string_view text, Target* target);

// Decodes %XX, and '+' as a space if `form`. Returns false if `text` is malformed.
bool DecodePercent(absl::string_view text, bool form, std::string* decoded);

// Returns "Not Found" for 404 and so on; "Error" for codes that this server does not use.
absl::string_view ReasonPhrase(int status);

// The status line and all headers, with the empty line that ends them. `keep_alive`: further requests may follow. The
// length is that of the body, unless the response is endless.
std::string FormatHead(const Response& response, bool keep_alive);

// True if a Host header ("localhost:80", "127.0.0.1", "[::1]:8080") names this machine's loopback. A page of another
// site whose name resolves to 127.0.0.1 (DNS rebinding) sends its own name here. "localhost" is the only name accepted,
// because some resolvers query a name server for others that IsLoopbackHost knows.
bool NamesLoopback(absl::string_view host_header);

}  // namespace ddprun::http

#endif  // DDPRUN_RENDEZVOUS_HTTP_HTTP_MESSAGE_H_
