#ifndef DDPRUN_RENDEZVOUS_HTTP_HTTP_SERVER_H_
#define DDPRUN_RENDEZVOUS_HTTP_HTTP_SERVER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/endpoint.h"
#include "rendezvous/core/credentials.h"
#include "rendezvous/http/http_message.h"

namespace ddprun::http {

// Limits on the resources that clients can use.
struct ServerLimits {
  size_t header_bytes = 12 * 1024;
  size_t body_bytes = 4 * 1024;
  // Connections of both kinds together. When there is no room for another one, the connection that has waited longest
  // without a request is closed.
  size_t connections = 256;
  size_t streams = 128;                             // connections with endless responses; more get 503
  absl::Duration request = absl::Seconds(10);       // to receive a whole request
  absl::Duration idle = absl::Seconds(30);          // between requests on a connection
  absl::Duration write = absl::Seconds(20);         // for the client to take a response
  absl::Duration stream_write = absl::Seconds(10);  // for the client to take a part of an endless response
  // Data that becomes available within this time is sent together on endless responses.
  absl::Duration stream_gather = absl::Milliseconds(50);
  // A comment is sent on a silent stream, so that a disconnected client is noticed.
  absl::Duration stream_comment = absl::Seconds(15);
  int stream_buffer_bytes = 64 * 1024;  // kernel send buffer of a stream
};

// An HTTP/1.1 server on one thread, with bounded sizes, connections and times. A malformed or oversized request gets an
// error and its connection is closed. HEAD is answered as GET without a body. Thread-safe.
class Server {
 public:
  struct Counts {
    size_t connections = 0;
    size_t streams = 0;
    uint64_t refused = 0;  // connections closed for lack of room since the start
  };
  // Answers a request. Called on the server's thread, so it must not block; must not throw.
  using Handler = std::function<Response(const Request&)>;

  // Listens at `address` (port 0: any free port); with a certificate in `credentials` it speaks TLS only. The
  // certificate is reloaded when its files change.
  //   INVALID_ARGUMENT  the certificate does not match its key.
  //   others            see Listen (rendezvous/server/listen.h).
  static absl::StatusOr<std::unique_ptr<Server>> Start(const Endpoint& address,
                                                       const rendezvous::Credentials& credentials, Handler handler,
                                                       const ServerLimits& limits = {});
  // Closes all connections. The handler is not called after it returns.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  int port() const;

  // Endless responses may have more to send; it is sent soon (ServerLimits::stream_gather).
  void Wake();

  Counts counts() const;

 private:
  class Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ddprun::http

#endif  // DDPRUN_RENDEZVOUS_HTTP_HTTP_SERVER_H_
