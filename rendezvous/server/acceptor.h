#ifndef DDPRUN_RENDEZVOUS_SERVER_ACCEPTOR_H_
#define DDPRUN_RENDEZVOUS_SERVER_ACCEPTOR_H_

#include <functional>
#include <list>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/endpoint.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/steady_time.h"
#include "rendezvous/server/client_limits.h"
#include "rendezvous/server/listen.h"

namespace ddprun::rendezvous {

// Rate-limits warnings that unauthenticated clients can provoke: one line per ten seconds, with the number of lines
// suppressed since the last one. Thread-safe.
class RefusalLog {
 public:
  void Warn(absl::string_view line) {
    int unlogged = 0;
    {
      MutexLock lock(&mutex_);
      const SteadyTime now = SteadyNow();
      if (now < next_line_) {
        ++unlogged_;
        return;
      }
      next_line_ = now + absl::Seconds(10);
      unlogged = std::exchange(unlogged_, 0);
    }
    Log(LogLevel::kWarning,
        absl::StrCat(line, unlogged > 0 ? absl::StrCat(" (and ", unlogged, " more since the last warning)") : ""));
  }

 private:
  Mutex mutex_;
  SteadyTime next_line_ ABSL_GUARDED_BY(mutex_) = SteadyTime::InfinitePast();
  int unlogged_ ABSL_GUARDED_BY(mutex_) = 0;
};

// Accepts TCP connections for a gRPC server, within limits (ConnectionLimits). gRPC's own listener has no limits, never
// accepts again after the process ran out of descriptors, and keeps connections that have not begun to speak HTTP/2 for
// seconds (1.51). Therefore a connection is handed to gRPC only when its first bytes have arrived and are valid; until
// then it costs one descriptor. Some descriptors stay reserved for the rest of the process: a connection beyond that
// evicts those that have waited longest without a session.
//
// A dedicated thread accepts; it sleeps while there is nothing to do. Listen, Start and Stop belong to one thread, the
// other methods are thread-safe.
class Acceptor {
 public:
  enum class Protocol { kHttp2, kTls };

  Acceptor(Protocol protocol, const ConnectionLimits::Limits& limits);
  // Calls Stop().
  ~Acceptor();
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  // Listens at `address` and returns the port; connections queue up from now on. 0.0.0.0 and :: may both be given with
  // the same port. Errors: see Listen (listen.h).
  absl::StatusOr<int> Listen(const Endpoint& address);

  // Takes over a socket that listens at this port at every address. Returns the port; no-op if that was done before.
  int Adopt(int listener, int port);

  // Starts handing connections over, on the acceptor's thread: non-blocking descriptors, which then belong to `take`.
  // Call once.
  void Start(std::function<void(int fd)> take);

  // Stops listening; `take` is not called afterwards. Later calls do nothing.
  void Stop();

  // See ConnectionLimits. OnStreamStarted returns false if the connection is about to be closed.
  bool OnStreamStarted(const PeerAddress& peer);
  void OnSessionStarted(const PeerAddress& peer);
  void OnSessionClosed(const PeerAddress& peer);
  std::vector<PeerAddress> LocalEndsOf(const PeerAddress& peer);

 private:
  using Id = ConnectionLimits::Id;
  // A connection whose first bytes have not arrived.
  struct Newcomer {
    Id id;
    SteadyTime until;
  };
  using Newcomers = std::list<Newcomer>;

  void Run();
  // Handles a wake-up: ends the connections in `to_end_`. Returns false if Stop was called.
  bool OnWake();
  // Timeout for epoll_wait, in milliseconds.
  int SleepMs() const;
  void SetPaused(bool paused);
  // Accepts up to a fixed number of connections that wait at a listener.
  void AcceptSome(int listener);
  void AddNewcomer(int fd, const PeerAddress& peer);
  // Handles readable bytes or the end of a newcomer's connection.
  void OnBytes(int fd);
  // Admits a newcomer whose first bytes are valid. Returns false if it has to wait for its turn.
  bool AdmitNewcomer(Newcomers::iterator newcomer);
  void AdmitReadyNewcomers();
  void CloseOverdue();
  void Close(Newcomers::iterator newcomer);
  // Ends up to `count` connections, those that have waited longest; returns how many it ended.
  int DisconnectOldest(int count);
  // Returns false if the connection is already closed.
  bool End(const Id& id);

  const Protocol protocol_;
  const ConnectionLimits::Limits bounds_;
  const int reserve_;  // not to be used by connections
  const int limit_;    // on all descriptors
  const int wake_;     // an eventfd
  const int copy_;     // used by End, which may have to work when no descriptor is free
  const int epoll_;
  std::vector<Listeners> listeners_;
  std::function<void(int fd)> take_;
  RefusalLog log_;
  bool paused_ = false;  // the kernel has no descriptor or memory for connections
  Newcomers newcomers_;  // oldest first
  std::unordered_map<int, Newcomers::iterator> by_fd_;
  std::vector<Id> ready_;  // newcomers waiting for their turn
  Mutex mutex_;
  ConnectionLimits limits_ ABSL_GUARDED_BY(mutex_);
  std::vector<Id> to_end_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_SERVER_ACCEPTOR_H_
