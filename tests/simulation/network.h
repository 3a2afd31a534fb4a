#ifndef DDPRUN_TESTS_SIMULATION_NETWORK_H_
#define DDPRUN_TESTS_SIMULATION_NETWORK_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <variant>
#include <vector>

#include "rendezvous/core/messages.h"
#include "tests/simulation/timeline.h"

namespace ddprun::testing {

// The end of a connection, as its other side sees it.
struct StreamEnd {};
// One thing on its way.
using Packet = std::variant<StreamEnd, rendezvous::LauncherMessage, rendezvous::ServerMessage>;

enum Direction { kUp = 0, kDown = 1 };  // to the server, to the launcher

// A connection of a launcher with the server: what is on its way, in order.
struct Connection {
  uint64_t id = 0;
  int client_host = 0;
  int server_host = 0;
  std::function<void(Packet)> receivers[2];  // by direction
  struct Lane {
    std::deque<Packet> packets;  // on their way, the oldest first
    SteadyTime last;             // arrival of the newest
    bool stalled = false;        // the oldest arrived at a cut
  } lanes[2];
};

// Hosts whose way to all others can be cut, each direction by itself. Packets of a connection wait while it is cut, and
// come late after that, as TCP's do; what belongs to no connection yet is lost. Within a host nothing is ever cut.
class Network {
 public:
  Network(Timeline* timeline, int hosts) : timeline_(timeline), hosts_(hosts) {}

  void Cut(int host, bool out, bool in);
  void Wall(int host);  // both, by a firewall that refuses new connections
  void Heal(int host);

  bool Reaches(int from, int to) const { return from == to || (!hosts_[from].out && !hosts_[to].in); }
  bool walled(int host) const { return hosts_[host].walled; }

  std::shared_ptr<Connection> Open(int client_host, int server_host);
  void Put(const std::shared_ptr<Connection>& connection, Direction direction, Packet packet);

  // A process ends in the midst of what it says: some of what is on its way from there may never have been sent.
  void LoseSome(const std::shared_ptr<Connection>& connection, Direction direction);

  // How long one packet takes this time.
  absl::Duration Delay();

 private:
  struct Host {
    bool out = false;  // cut
    bool in = false;
    bool walled = false;
  };

  bool IsCut(const Connection& connection, Direction direction) const;
  void Arrive(const std::shared_ptr<Connection>& connection, Direction direction);

  Timeline* const timeline_;
  std::vector<Host> hosts_;
  uint64_t opened_ = 0;
  std::vector<std::weak_ptr<Connection>> connections_;
  size_t purge_at_ = 16;  // of connections_: those that are gone are dropped
};

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_SIMULATION_NETWORK_H_
