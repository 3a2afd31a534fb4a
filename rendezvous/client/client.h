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
  std::string leader = {};  // HOST:PORT of the server, if it leads several
};

// No stream: the server can't be reached, or the stream ended. The client tries again by itself until Close,
// unless `permanent`.
struct Disconnected {
  std::string reason;      // one line: all addresses tried, and what happened to each
  bool permanent = false;  // trying again is no use (the server refused this launcher)
  // When a connection was begun of which the kernel said that nobody listens any more where the server was.
  std::optional<SteadyTime> refused = std::nullopt;
};

using ClientEvent = std::variant<Connected, Disconnected, ServerMessage>;

// A launcher's line to the rendezvous server. It transports; what to say, and to say it again after a new
// Connected, is the launcher's part. Thread-safe; no method blocks but the destructor.
class Client {
 public:
  // Called for every event, one at a time, in order, from a thread of the client's, never from within Send,
  // Reset or Close, and never again once the destructor returned.
  using Handler = std::function<void(ClientEvent)>;

  virtual ~Client() = default;

  // Queues a message for the present stream. Dropped if there is none, and where it does not belong: before the
  // stream's Join, or a second Join.
  virtual void Send(LauncherMessage message) = 0;

  // Takes the present stream for dead (the server is silent) and connects anew. The old stream is not ended before
  // the server has spoken on a new one: its end would tell the server that this process is gone.
  virtual void Reset() = 0;

  // Sends what is queued, then ends the stream for good. No events follow but at most one Disconnected.
  virtual void Close() = 0;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CLIENT_CLIENT_H_
