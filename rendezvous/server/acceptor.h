#ifndef DDPRUN_RENDEZVOUS_SERVER_ACCEPTOR_H_
#define DDPRUN_RENDEZVOUS_SERVER_ACCEPTOR_H_

#include <functional>
#include <list>
#include <thread>
#include <unordered_map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "base/endpoint.h"
#include "base/mutex.h"
#include "base/steady_time.h"
#include "rendezvous/server/connection_limits.h"
#include "rendezvous/server/listen.h"
#include "rendezvous/server/peer_address.h"
#include "rendezvous/server/refusal_log.h"

namespace ddprun::rendezvous {

// Accepts TCP connections for a gRPC server, within bounds (ConnectionLimits). gRPC's own listener has none, never
// accepts again once the process was out of descriptors, and gRPC keeps for seconds what has not begun to speak HTTP/2
// (1.51). So a connection is handed over when its first bytes are there and are what they should be; until then it
// costs a descriptor. Some descriptors are kept free for all else that the process does: a connection beyond that takes
// the place of those that have waited longest without a session.
//
// A thread of its own accepts; it sleeps while nobody comes. Listen, Start and Stop belong to one thread, the rest is
// thread-safe.
class Acceptor {
 public:
  enum class Protocol { kHttp2, kTls };

  Acceptor(Protocol protocol, const ConnectionLimits::Limits& limits);
  // As Stop.
  ~Acceptor();
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  // The port at which connections queue up from now on. 0.0.0.0 and :: may both be given with one port. Errors as of
  // Listen (listen.h).
  absl::StatusOr<int> Listen(const Endpoint& address);

  // Hands connections over from now on, on the acceptor's thread: non-blocking descriptors, which then belong to
  // `take`. Call once.
  void Start(std::function<void(int fd)> take);

  // Stops listening; `take` is not called any more. Later calls do nothing.
  void Stop();

  // As of ConnectionLimits. False: the connection is about to be closed.
  bool StreamBegan(const PeerAddress& peer);
  void SessionBegan(const PeerAddress& peer);
  void SessionEnded(const PeerAddress& peer);
  std::vector<PeerAddress> OwnEndsOf(const PeerAddress& peer);

 private:
  using Id = ConnectionLimits::Id;
  // A connection whose first bytes are not there yet.
  struct Newcomer {
    Id id;
    SteadyTime until;
  };
  using Newcomers = std::list<Newcomer>;

  void Run();
  // Stop was called, or connections are to be ended. False: the former.
  bool OnWake();
  // Until when the thread may sleep, for epoll_wait.
  int SleepMs() const;
  void SetPaused(bool paused);
  // Accepts what waits at a listener, or some of it.
  void AcceptSome(int listener);
  void TakeIn(int fd, const PeerAddress& peer);
  // Some bytes of a newcomer are there, or it is gone.
  void OnBytes(int fd);
  // Its first bytes are there. False: it has to wait for its turn.
  bool LetIn(Newcomers::iterator newcomer);
  void LetInThoseThatWait();
  void CloseOverdue();
  void Close(Newcomers::iterator newcomer);
  // Ends up to `count` connections, those that have waited longest; returns how many.
  int EndOldest(int count);
  // False: it is closed already.
  bool End(const Id& id);

  const Protocol protocol_;
  const ConnectionLimits::Limits bounds_;
  const int reserve_;  // descriptors that connections should not use
  const int limit_;    // of all descriptors
  const int wake_;     // an eventfd
  const int copy_;     // a descriptor for End, which may have to work when there are no others
  const int epoll_;
  std::vector<Listeners> listeners_;
  std::function<void(int fd)> take_;
  RefusalLog log_;
  bool paused_ = false;  // the kernel has no descriptor or memory for connections
  Newcomers newcomers_;  // the oldest first
  std::unordered_map<int, Newcomers::iterator> by_fd_;
  std::vector<Id> ready_;  // newcomers that wait for their turn
  Mutex mutex_;
  ConnectionLimits limits_ ABSL_GUARDED_BY(mutex_);
  std::vector<Id> to_end_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_SERVER_ACCEPTOR_H_
