#ifndef DDPRUN_LAUNCHER_STORE_CONNECTION_H_
#define DDPRUN_LAUNCHER_STORE_CONNECTION_H_

#include <cstddef>
#include <memory>
#include <string>

#include "launcher/os/unique_fd.h"
#include "launcher/store/join_watch.h"
#include "launcher/store/key_value.h"
#include "launcher/store/registration.h"
#include "launcher/store/request_parser.h"

namespace ddprun::launcher {

// How far a connection has come.
enum class ConnectionStage {
  kOpening,   // VALIDATE or the request after it has not come
  kHeld,      // a client from an address that no node of the round has registered yet: nothing is read from it
  kClient,    // a worker's: served
  kLauncher,  // a launcher's, which registers its node
};

// One client's socket with what has arrived and what could not be sent yet. Never blocks. Not thread-safe.
class Connection {
 public:
  Connection(ClientId id, UniqueFd fd, std::string address, const RequestLimits& limits)
      : id_(id), fd_(std::move(fd)), parser_(limits) {
    client.address = std::move(address);
  }

  ClientId id() const { return id_; }
  int fd() const { return fd_.get(); }
  RequestParser& parser() { return parser_; }

  // Takes what has arrived, up to a fixed amount, into the parser. False: the peer has closed or is gone.
  bool Read();
  // Sends `bytes`, or keeps what the socket does not take for Flush(). False: the peer is gone.
  bool Send(std::string bytes);
  bool Flush();

  size_t unsent_bytes() const { return output_.size() - sent_; }
  // Memory held for this connection, in bytes (roughly).
  size_t held_bytes() const { return sizeof(Connection) + parser_.held_bytes() + output_.capacity(); }

  // What the server knows about it; the server's to change.
  JoinWatch::Client client;  // pids: empty before the first PING
  ConnectionStage stage = ConnectionStage::kOpening;
  bool validated = false;                          // VALIDATE has come
  bool stranger = false;                           // no node of the round has its address
  std::string node;                                // counts as a connection of this node; see RoundNodes
  std::unique_ptr<NodeRegistration> registration;  // until the round is known
  bool paused = false;          // has complete requests left that are to be handled once the output has drained
  bool closing = false;         // to be closed at the end of this turn
  uint32_t watched_events = 0;  // as epoll has it
  size_t counted_bytes = 0;     // held_bytes() as the server's sum has it

 private:
  const ClientId id_;
  UniqueFd fd_;
  RequestParser parser_;
  std::string output_;
  size_t sent_ = 0;  // of output_
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_STORE_CONNECTION_H_
