#ifndef DDPRUN_TESTS_SIMULATION_SIMULATED_CLUSTER_H_
#define DDPRUN_TESTS_SIMULATION_SIMULATED_CLUSTER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/core/job_record.h"
#include "tests/simulation/network.h"
#include "tests/simulation/simulated_launcher.h"
#include "tests/simulation/simulated_server.h"
#include "tests/simulation/timeline.h"
#include "tests/simulation/workers.h"

namespace ddprun::testing {

// A cluster on simulated time: jobs of 1 to 1,000 nodes on up to 100,000 hosts with one launcher each, and rendezvousd
// on its own host, all with the real cores (see simulation.h). Launchers, workers, networks, racks and the server fail
// during `faults_for`; then everything heals, and every job must end. Settings and seed determine the history.
// Thread-compatible.
class Cluster {
 public:
  struct Settings {
    int nodes = 300;
    absl::Duration faults_for = absl::Seconds(60);
    double faults_per_node = 0.5;                 // during faults_for
    int server_restarts = 3;                      // during faults_for
    bool keeps_records = true;                    // the server's records survive a restart
    absl::Duration patience = absl::Minutes(40);  // every job must end within this time after faults_for
  };

  Cluster(const Settings& settings, uint64_t seed);
  ~Cluster();

  // Runs until every launcher has ended or an invariant is violated.
  void Run();

  // First violated invariant, by its number in docs/explorer.md; empty if there is none. 1: workers of two rounds of a
  // job never run at once; 2: the ranks of a round are a permutation; 4: every job ends, with one verdict.
  const std::string& violation() const { return violation_; }
  std::string history() const { return timeline_.history(); }

  struct Totals {
    int jobs = 0;
    int rounds = 0;
    int faults = 0;
    int launchers = 0;
    int fenced = 0;  // launchers that stopped their workers because they were cut off
    int succeeded = 0;
    int failed = 0;
    uint64_t events = 0;
    absl::Duration time;  // simulated
  };
  Totals totals() const;

 private:
  struct Job {
    std::string id;
    int first = 0;  // node
    int nodes = 0;
    rendezvous::JobSettings settings = rendezvous::DefaultSettings();
    absl::Duration work;
    bool workers_fail = false;
    std::optional<bool> told;  // verdict of the first launcher that exited with one: succeeded
    int running = 0;           // live launchers
    Workers::World world;      // the newest
  };
  struct Node {
    int job = 0;
    std::unique_ptr<Launcher> launcher;
    int started = 0;  // starts and re-forms of workers, as of the last Settle
    SteadyTime first_start = SteadyTime::InfiniteFuture();
    SteadyTime due = SteadyTime::InfiniteFuture();
    bool changed = false;
    bool counted = false;  // in the job's `running`
  };
  using Due = std::pair<absl::Duration, int>;  // since the clock's start, node

  void DrawJobs();
  void PlanFaults();
  void Fault();
  void RestartServer();
  void StartServer();
  bool Alive(int node) const { return nodes_[node].launcher != nullptr && nodes_[node].launcher->alive(); }
  void Start(int node);
  void Cut(int node, bool out, bool in, absl::Duration time);
  // Checks the workers and updates the deadlines of launchers in changed_.
  void Settle();
  void CheckWorlds(const Job& job);
  void OnEnded(int node);
  SteadyTime NextDue();
  void RunDue();

  const Settings settings_;
  const uint64_t seed_;
  Timeline timeline_;
  Network network_;
  rendezvous::SavedState records_;
  std::shared_ptr<Server> server_;
  std::vector<std::shared_ptr<Server>> servers_;  // including dead ones
  int rounds_ = 0;
  std::vector<Job> jobs_;
  std::vector<Node> nodes_;
  std::vector<std::unique_ptr<Launcher>> ended_;
  std::vector<int> changed_;
  std::priority_queue<Due, std::vector<Due>, std::greater<Due>> due_;
  SteadyTime faults_end_;
  int running_ = 0;  // live launchers
  int to_start_ = 0;
  int ids_ = 0;
  int ports_ = 1000;
  Totals totals_;
  std::string violation_;
};

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_SIMULATION_SIMULATED_CLUSTER_H_
