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

// A cluster on simulated time: jobs of 1 to 1,000 nodes on up to 100,000 hosts, one launcher each, and one rendezvousd
// on a host of its own, all of them the real cores (see simulation.h). For some time launchers, workers, hosts'
// networks, whole racks and the server fail; then everything heals and every job has to come to its end. The same
// settings and seed give the same history. Thread-compatible.
class Cluster {
 public:
  struct Settings {
    int nodes = 300;
    absl::Duration faults_for = absl::Seconds(60);
    double faults_per_node = 0.5;                 // in that time
    int server_restarts = 3;                      // in that time
    bool keeps_records = true;                    // of the server
    absl::Duration patience = absl::Minutes(40);  // after the faults: by then every job must have ended
  };

  Cluster(const Settings& settings, uint64_t seed);
  ~Cluster();

  // Runs until every launcher has ended, or `violation` says something.
  void Run();

  // Empty, or the first of these that was broken, by its number in docs/model.md: 1 never workers of two rounds of a
  // job at once, 2 the ranks of a round are a permutation, 4 every job ends, and its launchers are told the same.
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
    std::optional<bool> told;  // the verdict that a launcher ended with
    int running = 0;           // launchers that live
    Workers::World world;      // the newest
  };
  struct Node {
    int job = 0;
    std::unique_ptr<Launcher> launcher;
    int started = 0;  // workers, as of the last look
    SteadyTime first_start = SteadyTime::InfiniteFuture();
    SteadyTime due = SteadyTime::InfiniteFuture();
    bool changed = false;
    bool counted = false;  // among its job's `running`
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
  // Launchers that something has happened to: looks at their workers and at when they are due.
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
  std::vector<std::shared_ptr<Server>> servers_;  // all that there were
  int rounds_ = 0;
  std::vector<Job> jobs_;
  std::vector<Node> nodes_;
  std::vector<std::unique_ptr<Launcher>> ended_;
  std::vector<int> changed_;
  std::priority_queue<Due, std::vector<Due>, std::greater<Due>> due_;
  SteadyTime faults_end_;
  int running_ = 0;  // launchers that live
  int to_start_ = 0;
  int ids_ = 0;
  int ports_ = 1000;
  Totals totals_;
  std::string violation_;
};

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_SIMULATION_SIMULATED_CLUSTER_H_
