#ifndef DDPRUN_RENDEZVOUS_HTTP_HTTP_SERVICE_H_
#define DDPRUN_RENDEZVOUS_HTTP_HTTP_SERVICE_H_

#include <atomic>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "rendezvous/core/credentials.h"
#include "rendezvous/http/http_api.h"
#include "rendezvous/http/http_server.h"

namespace ddprun::http {

struct ServiceOptions {
  std::string address;  // ADDRESS:PORT
  bool open = false;    // as HttpApi's `any_host`
  rendezvous::Credentials credentials;
};

// An HTTP server that answers with what `sources` has. What these use outlives it. Thread-safe.
class HttpService {
 public:
  // As Server::Start; the numbers of connections in `sources.server` are filled in here.
  static absl::StatusOr<std::unique_ptr<HttpService>> Start(const ServiceOptions& options, Sources sources);
  // No source is called any more when it returns.
  ~HttpService();

  int port() const { return server_->port(); }

 private:
  HttpService() = default;

  std::unique_ptr<HttpApi> api_;
  std::unique_ptr<Server> server_;
  std::atomic<const Server*> running_{nullptr};  // for the server's thread, which may be faster than Start
};

}  // namespace ddprun::http

#endif  // DDPRUN_RENDEZVOUS_HTTP_HTTP_SERVICE_H_
