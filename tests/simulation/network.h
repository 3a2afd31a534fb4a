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

// The end of a connection, as the other side sees it.
struct StreamEnd {};
using Packet = std::variant<StreamEnd, rendezvous::LauncherMessage, rendezvous::ServerMessage>;

enum Direction { kUp = 0, kDown = 1 };  // to the server, to the launcher

// A connection between a launcher and the server, with its packets in flight.
struct Connection {
  uint64_t id = 0;
  int client_host = 0;
  int server_host = 0;
  std::function<void(Packet)> receivers[2];  // index: direction
  struct Lane {
    std::deque<Packet> packets;  // in flight, oldest first
    SteadyTime last;             // arrival time of the newest
    bool stalled = false;        // the oldest packet was dropped at a cut and waits for retransmission
  } lanes[2];
};

// Hosts that can be cut off from all others, in either or both directions. While a connection is cut, its packets wait;
// after Heal they arrive late, as retransmitted TCP segments do. Connection attempts across a cut are lost. Traffic
// within a host is never cut.
class Network {
 public:
  Network(Timeline* timeline, int hosts) : timeline_(timeline), hosts_(hosts) {}

  void Cut(int host, bool out, bool in);
  void Wall(int host);  // cuts both directions, by a firewall that refuses new connections
  void Heal(int host);

  bool Reaches(int from, int to) const { return from == to || (!hosts_[from].out && !hosts_[to].in); }
  bool walled(int host) const { return hosts_[host].walled; }

  std::shared_ptr<Connection> Open(int client_host, int server_host);
  void Put(const std::shared_ptr<Connection>& connection, Direction direction, Packet packet);

  // May drop the newest packets: the sending process may have ended before it sent them.
  void LoseSome(const std::shared_ptr<Connection>& connection, Direction direction);

  // Draws the delay of one packet.
  absl::Duration Delay();

 private:
  struct Host {
    bool out = false;  // outgoing packets are cut
    bool in = false;
    bool walled = false;
  };

  bool IsCut(const Connection& connection, Direction direction) const;
  void Arrive(const std::shared_ptr<Connection>& connection, Direction direction);

  Timeline* const timeline_;
  std::vector<Host> hosts_;
  uint64_t opened_ = 0;
  std::vector<std::weak_ptr<Connection>> connections_;
  size_t purge_at_ = 16;  // size of connections_ at which expired ones are removed
};

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_SIMULATION_NETWORK_H_
