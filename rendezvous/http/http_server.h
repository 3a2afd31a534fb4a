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

// What a server spends on its clients.
struct ServerLimits {
  size_t header_bytes = 12 * 1024;
  size_t body_bytes = 4 * 1024;
  // Of both kinds together. Where there is no room for another one, the connection that has waited longest without a
  // request is closed.
  size_t connections = 256;
  size_t streams = 128;                             // connections whose response has no end; more get 503
  absl::Duration request = absl::Seconds(10);       // by then a request must have come whole
  absl::Duration idle = absl::Seconds(30);          // between requests of a connection
  absl::Duration write = absl::Seconds(20);         // by then a response must be taken
  absl::Duration stream_write = absl::Seconds(10);  // the same for a part of a response without an end
  // What comes so close together is sent together on responses without an end.
  absl::Duration stream_gather = absl::Milliseconds(50);
  // A comment is sent on a silent stream, so that its end is noticed.
  absl::Duration stream_comment = absl::Seconds(15);
  int stream_buffer_bytes = 64 * 1024;  // of the kernel, for what a client has not taken
};

// An HTTP/1.1 server on one thread, with everything bounded: sizes, connections, times. What is malformed or too large
// is answered with an error and its connection closed. HEAD is answered as GET without a body. Thread-safe.
class Server {
 public:
  struct Counts {
    size_t connections = 0;
    size_t streams = 0;
    uint64_t refused = 0;  // connections closed for lack of room, since the start
  };
  // Answers a request. Called on the server's thread, so it must not wait; throws nothing.
  using Handler = std::function<Response(const Request&)>;

  // Listens at `address` (port 0: any free port); with a certificate in `credentials` it speaks TLS only. The
  // certificate is read again when its files change.
  //   INVALID_ARGUMENT  the certificate does not fit its key.
  //   others            as Listen (rendezvous/server/listen.h).
  static absl::StatusOr<std::unique_ptr<Server>> Start(const Endpoint& address,
                                                       const rendezvous::Credentials& credentials, Handler handler,
                                                       const ServerLimits& limits = {});
  // Closes all connections. The handler is not called any more when it returns.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  int port() const;

  // There may be more to send on responses without an end; it is sent soon (ServerLimits::stream_gather).
  void Wake();

  Counts counts() const;

 private:
  class Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ddprun::http

#endif  // DDPRUN_RENDEZVOUS_HTTP_HTTP_SERVER_H_
