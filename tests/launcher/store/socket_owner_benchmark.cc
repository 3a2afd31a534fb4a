// Measures the cost of finding a connection's owner, which a store does once for each: with sock_diag, and by reading
// /proc/net/tcp, with as many other connections as the argument specifies.
#include <sys/socket.h>

#include <vector>

#include "base/socket_owner.h"
#include "benchmark/benchmark.h"
#include "launcher/os/unique_fd.h"
#include "launcher/store/listener.h"

namespace ddprun::launcher {
namespace {

struct Connections {
  explicit Connections(int count) : listener(*Listen("127.0.0.1", 0, 0)) {
    const SocketAddress to = *NumericAddress("127.0.0.1", listener.port);
    for (int i = 0; i < count; ++i) {
      sockets.emplace_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      if (connect(sockets.back().get(), to.get(), to.size) != 0) return;
      peer.size = sizeof peer.storage;
      sockets.emplace_back(accept(listener.fd.get(), peer.get(), &peer.size));
    }
    getsockname(sockets.back().get(), own.get(), &own.size);
  }

  Listener listener;
  std::vector<UniqueFd> sockets;
  SocketAddress peer;
  SocketAddress own;
};

void BM_SockDiag(benchmark::State& state) {
  const Connections connections(static_cast<int>(state.range(0)));
  SocketOwner owner;
  for (auto _ : state) {
    if (!owner.UserOf(connections.peer, connections.own).ok()) return state.SkipWithError("not found");
  }
}
BENCHMARK(BM_SockDiag)->Arg(1)->Arg(400);

void BM_ProcNetTcp(benchmark::State& state) {
  const Connections connections(static_cast<int>(state.range(0)));
  for (auto _ : state) {
    if (!SocketOwner::UserByProc(connections.peer, connections.own).ok()) return state.SkipWithError("not found");
  }
}
BENCHMARK(BM_ProcNetTcp)->Arg(1)->Arg(400);

}  // namespace
}  // namespace ddprun::launcher

BENCHMARK_MAIN();
