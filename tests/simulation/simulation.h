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

// A job on simulated time, with real AgentMachines, Reconnectors and Registries. The shells are simulated: connections
// whose packets are delayed while the network is cut, workers that exit late or ignore SIGTERM, the launchers' guards,
// kernels that close the connections of dead processes, and launchers and servers that freeze.
//
// The server runs in the launcher of node 0, as with --rdzv-endpoint at the first node (another launcher on its host
// may take over when it dies), or as its own process on its own host.
//
// All workers are checked after every event: `violation()` reports two worlds at once. A seed determines the history.
class Simulation {
 public:
  struct Settings {
    bool hosted = true;              // the server runs in launchers on node 0's host
    bool keeps_records = false;      // a restarted server restores its records; ignored if hosted
    bool two_on_first_host = false;  // node 1 is on node 0's host; otherwise each node has its own host
    int nodes = 3;
    int slots = 2;  // workers of each node
    int min_nodes = 1;
    int max_nodes = 3;
    absl::Duration heartbeat_timeout = absl::Seconds(3);
    absl::Duration last_call = absl::Milliseconds(500);
    absl::Duration node_cooldown = absl::Minutes(1);
    absl::Duration work = absl::Seconds(60);  // a worker succeeds after this running time
    absl::Duration shutdown_timeout = absl::Seconds(10);
    bool workers_fail = true;  // at random
    int plain = 1;             // one launcher in this many has workers that cannot re-form; 0: none
  };

  Simulation(const Settings& settings, uint64_t seed);
  ~Simulation();

  // Faults. Nodes count from 0. Kill, Stop, Freeze, Thaw and FailWorker have no effect on a launcher that has ended.
  void Cut(int node, bool to_server, bool from_server);  // its host
  void Wall(int node);                                   // its host, both ways, by a firewall that refuses
  void Heal(int node);
  void Kill(int node);    // SIGKILL to the launcher
  void Start(int node);   // a new launcher, if the node's last one has ended
  void Stop(int node);    // SIGTERM to the launcher
  void Freeze(int node);  // SIGSTOP
  void Thaw(int node);    // SIGCONT
  void FailWorker(int node);
  // These have no effect on a server in a launcher.
  void StopServer();   // the host refuses connections afterwards
  void StartServer();  // a new process that knows only the records
  void FreezeServer();
  void ThawServer();

  // Runs for `time`, or until an invariant is violated.
  void Run(absl::Duration time);

  bool EveryoneEnded() const;
  // Number of workers that run and are not suspended.
  int running() const;
  // Totals of: rounds assigned by servers, workers started, launchers that stopped their workers because they were cut
  // off, ExcludedFromRound messages received, workers re-formed, and takeovers of the server.
  int rounds_told() const { return rounds_told_; }
  int starts() const;
  int fenced() const;
  int left_out() const;
  int reforms() const;
  int takeovers() const { return hostings_; }
  // Not empty if workers of two rounds ran at once, or if Server::violation was not empty.
  const std::string& violation() const { return violation_; }
  // A readable log of events.
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
  std::shared_ptr<Server> server_;                    // the last one started
  std::vector<std::unique_ptr<Launcher>> launchers_;  // the newest of each node
  std::vector<std::unique_ptr<Launcher>> ended_;      // their predecessors
  int ports_ = 1000;
  uint64_t ids_ = 0;
  int hostings_ = -1;  // not counting the first
  std::string violation_;
};

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_SIMULATION_SIMULATION_H_
