#ifndef DDPRUN_LAUNCHER_STORE_CONNECTION_H_
#define DDPRUN_LAUNCHER_STORE_CONNECTION_H_

#include <cstddef>
#include <memory>
#include <string>

#include "launcher/io/file_descriptor.h"
#include "launcher/store/join_watch.h"
#include "launcher/store/key_value.h"
#include "launcher/store/registration.h"
#include "launcher/store/request_parser.h"

namespace ddprun::launcher {

// Stage of a connection.
enum class ConnectionStage {
  kOpening,   // VALIDATE or the request after it has not arrived
  kHeld,      // a client from an address that no node of the round has registered yet: its requests are not read
  kClient,    // a worker's connection, served
  kLauncher,  // a launcher's connection, which registers its node
};

// One client's socket with its unprocessed input and unsent output. Never blocks. Not thread-safe.
class Connection {
 public:
  Connection(ClientId id, UniqueFd fd, std::string address, const RequestLimits& limits)
      : id_(id), fd_(std::move(fd)), parser_(limits) {
    client.address = std::move(address);
  }

  ClientId id() const { return id_; }
  int fd() const { return fd_.get(); }
  RequestParser& parser() { return parser_; }

  // Reads available data, up to a fixed amount, into the parser. False: the peer has closed the connection or is gone.
  bool Read();
  // Sends `bytes`, or keeps the part that the socket does not accept for Flush(). False: the peer is gone.
  bool Send(std::string bytes);
  bool Flush();

  size_t unsent_bytes() const { return output_.size() - sent_; }
  // Memory held for this connection, in bytes (approximate).
  size_t held_bytes() const { return sizeof(Connection) + parser_.held_bytes() + output_.capacity(); }

  // State maintained by the server.
  JoinWatch::Client client;  // pids: empty before the first PING
  ConnectionStage stage = ConnectionStage::kOpening;
  bool validated = false;                          // VALIDATE has arrived
  bool stranger = false;                           // no node of the round has its address
  std::string node;                                // counts as a connection of this node; see RoundNodes
  std::unique_ptr<NodeRegistration> registration;  // set until the round is known
  bool paused = false;          // complete requests are left, to be handled once the output has drained
  bool closing = false;         // to be closed at the end of this turn
  uint32_t watched_events = 0;  // as registered with epoll
  size_t counted_bytes = 0;     // held_bytes() as included in the server's sum

 private:
  const ClientId id_;
  UniqueFd fd_;
  RequestParser parser_;
  std::string output_;
  size_t sent_ = 0;  // of output_
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_STORE_CONNECTION_H_
