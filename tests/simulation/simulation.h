#ifndef DDPRUN_TESTS_SIMULATION_SIMULATION_H_
#define DDPRUN_TESTS_SIMULATION_SIMULATION_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "launcher/core/agent_machine.h"
#include "rendezvous/client/backoff.h"
#include "rendezvous/client/join_first.h"
#include "rendezvous/core/registry.h"

namespace ddprun::testing {

// A job on simulated time: real AgentMachines and a real Registry. What lies between them is modelled after the shells:
// connections whose packets wait while the network is cut and come late after that (or never were answered), a client
// that connects anew as GrpcClient does, workers that take their time to end or ignore SIGTERM, the launcher's guard,
// kernels that close the connections of dead processes, and launchers and a server that hang for a while.
//
// Every event is followed by a look at all workers of all nodes: `violation()` says if two worlds ran at once. The same
// seed gives the same history.
class Simulation {
 public:
  struct Settings {
    int nodes = 3;
    int min_nodes = 1;
    int max_nodes = 3;
    absl::Duration heartbeat_timeout = absl::Seconds(3);
    absl::Duration last_call = absl::Milliseconds(500);
    absl::Duration work = absl::Seconds(60);  // a worker that ran for so long has succeeded
    absl::Duration shutdown_timeout = absl::Seconds(10);
    bool workers_fail = true;  // now and then
  };

  Simulation(const Settings& settings, uint64_t seed);
  ~Simulation();

  // What can be done to the world. Nodes count from 0; a node whose launcher has ended is left alone.
  void Cut(int node, bool to_server, bool from_server);
  void Wall(int node);  // both ways, by a firewall that refuses new connections
  void Heal(int node);
  void Kill(int node);    // SIGKILL to the launcher
  void Start(int node);   // another launcher on that host, if there is none
  void Stop(int node);    // SIGTERM to the launcher
  void Freeze(int node);  // SIGSTOP
  void Thaw(int node);    // SIGCONT
  void StopServer();      // the process ends; the host refuses connections
  void StartServer();     // again, without any memory
  void FreezeServer();
  void ThawServer();

  // Lets time pass.
  void Run(absl::Duration time);

  SteadyTime now() const { return now_; }
  bool alive(int node) const;
  bool EveryoneEnded() const;
  // How many times workers were started, and by being cut off stopped.
  int starts() const { return starts_; }
  int fenced() const { return fenced_; }
  // Empty: never did workers of two rounds run at the same instant.
  const std::string& violation() const { return violation_; }
  // What happened, for people to read.
  std::string history() const;

 private:
  struct Connection;
  struct Node;
  using Key = std::tuple<std::string, uint64_t>;  // node id, incarnation
  // One thing on its way: a message, or the end of the connection (neither set).
  struct Packet {
    std::optional<rendezvous::LauncherMessage> to_server;
    std::optional<rendezvous::ServerMessage> to_launcher;
  };
  enum Direction { kUp = 0, kDown = 1 };

  void At(SteadyTime time, std::function<void()> what);
  void In(absl::Duration wait, std::function<void()> what) { At(now_ + wait, std::move(what)); }
  absl::Duration Random(absl::Duration max);
  int Below(int n) { return static_cast<int>(random_() % n); }
  void Note(const std::string& text);

  // The network.
  bool IsCut(const Node& node, Direction direction) const;
  void Put(const std::shared_ptr<Connection>& connection, Direction direction, Packet packet);
  void Arrive(const std::shared_ptr<Connection>& connection, Direction direction);
  void OnPacketAtServer(const std::shared_ptr<Connection>& connection, Packet packet);
  void OnPacketAtLauncher(const std::shared_ptr<Connection>& connection, Packet packet);

  // The client, as GrpcClient.
  void TryToConnect(Node* node);
  void OnAttemptOver(Node* node, uint64_t attempt, std::optional<SteadyTime> refused);
  void OnOpen(Node* node, uint64_t attempt);
  void Reconnect(Node* node);
  void OnStreamEnd(Node* node, std::optional<SteadyTime> refused);

  // The launcher.
  template <typename Call>
  void Step(Node* node, Call call);
  void Execute(Node* node, const launcher::AgentEffect& effect);
  void End(Node* node);
  void SpawnWorker(Node* node, const rendezvous::Assignment& assignment);
  void EndWorker(Node* node, std::optional<rendezvous::WorkerFailure> failure);
  rendezvous::WorkerFailure Failure(const Node& node, int signal) const;

  // The server.
  void CarryOut(rendezvous::Effects effects);
  void CarryOut(rendezvous::Tell tell);
  void CarryOut(const rendezvous::Close& close);
  void ServerDeadline();

  void CheckWorlds();

  const Settings settings_;
  std::mt19937_64 random_;
  SteadyTime now_ = SteadyTime::FromStart(absl::Seconds(1000));
  struct Event {
    SteadyTime time;
    uint64_t order;
    std::function<void()> what;
    bool operator<(const Event& other) const {
      return time > other.time || (time == other.time && order > other.order);
    }
  };
  std::priority_queue<Event> events_;
  uint64_t order_ = 0;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::unique_ptr<rendezvous::Registry> registry_;  // null: the server does not run
  bool server_frozen_ = false;
  std::vector<std::function<void()>> server_backlog_;
  std::map<Key, std::shared_ptr<Connection>> joined_;
  uint64_t server_life_ = 0;  // connections of an earlier one lead nowhere
  int ports_ = 1000;
  uint64_t ids_ = 0;
  int starts_ = 0;
  int fenced_ = 0;
  std::string violation_;
  std::deque<std::string> history_;
};

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_SIMULATION_SIMULATION_H_
