#ifndef DDPRUN_TESTS_SIMULATION_SIMULATION_H_
#define DDPRUN_TESTS_SIMULATION_SIMULATION_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/simulation/network.h"
#include "tests/simulation/simulated_launcher.h"
#include "tests/simulation/simulated_server.h"
#include "tests/simulation/timeline.h"

namespace ddprun::testing {

// A job on simulated time: real AgentMachines, real Reconnectors and real Registries. What lies between them is
// modelled after the shells: connections whose packets wait while the network is cut and come late after that (or never
// were answered), workers that take their time to end or ignore SIGTERM, the launchers' guards, kernels that close the
// connections of dead processes, and launchers and servers that hang for a while.
//
// Where the server is: in the launcher of node 0, as with --rdzv-endpoint at the first node (another launcher on its
// host may take over when it dies), or a process of its own on a host of its own.
//
// Every event is followed by a look at all workers of all nodes: `violation()` says if two worlds ran at once. The same
// seed gives the same history.
class Simulation {
 public:
  struct Settings {
    bool hosted = true;              // the server lives in launchers of node 0's host
    bool keeps_records = false;      // servers go on with what the one before has kept; not if hosted
    bool two_on_first_host = false;  // node 1 is on node 0's host; else each node has a host of its own
    int nodes = 3;
    int slots = 2;  // workers of each node
    int min_nodes = 1;
    int max_nodes = 3;
    absl::Duration heartbeat_timeout = absl::Seconds(3);
    absl::Duration last_call = absl::Milliseconds(500);
    absl::Duration node_cooldown = absl::Minutes(1);
    absl::Duration work = absl::Seconds(60);  // a worker that ran for so long has succeeded
    absl::Duration shutdown_timeout = absl::Seconds(10);
    bool workers_fail = true;  // now and then
    int plain = 1;             // one launcher in so many has workers that can't re-form; 0: none
  };

  Simulation(const Settings& settings, uint64_t seed);
  ~Simulation();

  // What can be done to the world. Nodes count from 0; a node whose launcher has ended is left alone.
  void Cut(int node, bool to_server, bool from_server);  // its host
  void Wall(int node);                                   // its host, both ways, by a firewall that refuses
  void Heal(int node);
  void Kill(int node);    // SIGKILL to the launcher
  void Start(int node);   // another launcher on that host, if there is none
  void Stop(int node);    // SIGTERM to the launcher
  void Freeze(int node);  // SIGSTOP
  void Thaw(int node);    // SIGCONT
  void FailWorker(int node);
  // Of a server that is a process of its own; nothing happens to one in a launcher.
  void StopServer();   // it ends; the host refuses connections
  void StartServer();  // again, without any memory but its records
  void FreezeServer();
  void ThawServer();

  // Lets time pass.
  void Run(absl::Duration time);

  bool EveryoneEnded() const;
  // Workers that run.
  int running() const;
  // How many rounds servers have given out.
  int rounds_told() const { return rounds_told_; }
  // How many times a worker was started, a launcher stopped its workers because it was cut off, and took over the
  // server.
  int starts() const;
  int fenced() const;
  // How many times a launcher was told that a round begins without it.
  int left_out() const;
  // How many times a worker went on in another round.
  int reforms() const;
  int takeovers() const { return hostings_; }
  // Empty: never did workers of two rounds run at the same instant, and no round broke the rules of survivors.
  const std::string& violation() const { return violation_; }
  // What happened, for people to read.
  std::string history() const { return timeline_.history(); }

 private:
  int HostOf(int node) const { return settings_.two_on_first_host && node == 1 ? 0 : node; }
  std::shared_ptr<Server> Listener() const { return server_ == nullptr || server_->dead() ? nullptr : server_; }
  std::shared_ptr<Server> HostServer(int host);
  launcher::AgentSettings AgentSettingsOf(int node);
  void CheckWorlds();

  const Settings settings_;
  Timeline timeline_;
  Network network_;
  const int server_host_;
  rendezvous::SavedState records_;
  int rounds_told_ = 0;
  std::shared_ptr<Server> server_;                    // the last one that began to listen
  std::vector<std::unique_ptr<Launcher>> launchers_;  // by node: the newest
  std::vector<std::unique_ptr<Launcher>> ended_;      // those before them
  int ports_ = 1000;
  uint64_t ids_ = 0;
  int hostings_ = -1;  // but for the first
  std::string violation_;
};

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_SIMULATION_SIMULATION_H_
