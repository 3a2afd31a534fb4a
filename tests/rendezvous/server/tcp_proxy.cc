#include "tests/rendezvous/server/tcp_proxy.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>

namespace ddprun::rendezvous {
namespace {

sockaddr_in Loopback(int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

}  // namespace

int ConnectTo(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in address = Loopback(port);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return fd;
  close(fd);
  return -1;
}

int ListenAnywhere(int* port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = Loopback(0);
  socklen_t size = sizeof address;
  if (bind(fd, reinterpret_cast<sockaddr*>(&address), size) != 0 || listen(fd, 64) != 0 ||
      getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    abort();  // the loopback always has a free port
  }
  *port = ntohs(address.sin_port);
  return fd;
}

// The sockets are closed by the last pump to go, so that their numbers are not used again meanwhile.
struct TcpProxy::Link {
  Link(int client, int server) : client(client), server(server) {}
  ~Link() {
    const linger reset = {1, 0};
    setsockopt(client, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    close(client);
    close(server);
  }
  void Shutdown() {
    shutdown(client, SHUT_RDWR);
    shutdown(server, SHUT_RDWR);
  }
  const int client;
  const int server;
  std::atomic<bool> silent = false;
};

TcpProxy::TcpProxy(int target_port) : target_port_(target_port), listener_(ListenAnywhere(&port_)) {
  acceptor_ = std::thread([this] { Accept(); });
}

TcpProxy::~TcpProxy() {
  shutdown(listener_, SHUT_RDWR);  // wakes the acceptor
  acceptor_.join();
  close(listener_);
  Cut();
  MutexLock lock(&mutex_);
  for (std::thread& pump : pumps_) pump.join();
}

void TcpProxy::Accept() {
  while (true) {
    const int client = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (client < 0) return;
    const int server = ConnectTo(target_port_);
    if (server < 0) {
      close(client);
      continue;
    }
    const int on = 1;
    setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(server, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    auto link = std::make_shared<Link>(client, server);
    MutexLock lock(&mutex_);
    links_.push_back(link);
    pumps_.emplace_back([link] { Pump(link, link->client, link->server); });
    pumps_.emplace_back([link] { Pump(link, link->server, link->client); });
  }
}

void TcpProxy::Pump(const std::shared_ptr<Link>& link, int from, int to) {
  char buffer[16 * 1024];
  while (true) {
    const ssize_t got = recv(from, buffer, sizeof buffer, 0);
    if (got <= 0) break;
    if (link->silent) continue;
    for (ssize_t sent = 0; sent < got;) {
      const ssize_t n = send(to, buffer + sent, got - sent, MSG_NOSIGNAL);
      if (n <= 0) break;
      sent += n;
    }
  }
  if (!link->silent) link->Shutdown();
}

void TcpProxy::Cut() {
  std::vector<std::shared_ptr<Link>> links;
  {
    MutexLock lock(&mutex_);
    links.swap(links_);
  }
  for (const auto& link : links) link->Shutdown();
}

void TcpProxy::Silence() {
  MutexLock lock(&mutex_);
  for (const auto& link : links_) link->silent = true;
}

int TcpProxy::accepted() {
  MutexLock lock(&mutex_);
  return static_cast<int>(pumps_.size() / 2);
}

}  // namespace ddprun::rendezvous
