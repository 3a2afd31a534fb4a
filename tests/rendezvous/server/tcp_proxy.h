#ifndef DDPRUN_TESTS_RENDEZVOUS_SERVER_TCP_PROXY_H_
#define DDPRUN_TESTS_RENDEZVOUS_SERVER_TCP_PROXY_H_

#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/mutex.h"

namespace ddprun::rendezvous {

// Forwards connections on a port of the loopback to another one, and breaks them on demand. Thread-safe.
class TcpProxy {
 public:
  explicit TcpProxy(int target_port);
  ~TcpProxy();

  int port() const { return port_; }

  // Resets all connections; new ones work.
  void Cut();

  // Forwards nothing more on present connections, which stay open: a silent network. New ones work.
  void Silence();

  // How many connections there have been.
  int accepted();

 private:
  struct Link;
  void Accept();
  static void Pump(const std::shared_ptr<Link>& link, int from, int to);

  const int target_port_;
  int port_ = 0;
  const int listener_;
  Mutex mutex_;
  std::vector<std::shared_ptr<Link>> links_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread> pumps_ ABSL_GUARDED_BY(mutex_);
  std::thread acceptor_;
};

// A socket connected to a port of the loopback; the caller closes it. -1: no connection.
int ConnectTo(int port);

// A socket that listens on a free port of the loopback; the caller closes it.
int ListenAnywhere(int* port);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_TESTS_RENDEZVOUS_SERVER_TCP_PROXY_H_
