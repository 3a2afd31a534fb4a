#ifndef DDPRUN_RENDEZVOUS_CLIENT_CLIENT_H_
#define DDPRUN_RENDEZVOUS_CLIENT_CLIENT_H_

#include <functional>
#include <optional>
#include <string>
#include <variant>

#include "base/steady_time.h"
#include "rendezvous/core/messages.h"

namespace ddprun::rendezvous {

// The stream to the server is open. The next message sent must be a Join.
struct Connected {
  std::string leader = {};  // HOST:PORT of the server if it is the leader of several, else empty
};

// There is no stream: the server can't be reached, or the stream ended. The client retries until Close, unless
// `permanent`.
struct Disconnected {
  std::string reason;      // one line: all addresses tried, and the result of each
  bool permanent = false;  // non-retryable: the server refused this launcher
  // Start of a connection attempt which proves that the last server is gone: the kernel refused it at that server's
  // address, or, with several servers, a follower answered that no other server has led since.
  std::optional<SteadyTime> refused = std::nullopt;
};

using ClientEvent = std::variant<Connected, Disconnected, ServerMessage>;

// A launcher's connection to the rendezvous server. It only transports messages; the launcher decides what to send, and
// to send it again after a new Connected. Thread-safe; only the destructor blocks.
class Client {
 public:
  // Called for every event, one at a time, in order, from a thread of the client, never from within Send, Reset or
  // Close, and never after the destructor has returned.
  using Handler = std::function<void(ClientEvent)>;

  virtual ~Client() = default;

  // Queues a message for the current stream. Dropped if there is no stream, if it precedes the stream's Join, or if it
  // is a second Join.
  virtual void Send(LauncherMessage message) = 0;

  // Abandons the current stream (the server is silent) and connects anew. The old stream is not ended until the server
  // has sent a message on a new one, because its end would tell the server that this process is gone.
  virtual void Reset() = 0;

  // Sends queued messages, then ends the stream permanently. At most one Disconnected event follows.
  virtual void Close() = 0;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CLIENT_CLIENT_H_
