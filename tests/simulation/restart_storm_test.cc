// Servers that repeatedly restart after 0.3 to 3 s: jobs make progress where that is safe (protocol 4.5,
// 0007-overload.md).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <random>

#include "tests/simulation/simulation.h"

namespace ddprun::testing {
namespace {

constexpr uint64_t kJobs = 200;
constexpr int kMostServers = 12;  // each lives for less than 7/6 of the heartbeat timeout

class Storm {
 public:
  Storm(bool keeps_records, uint64_t seed)
      : random_(seed),
        settings_{.hosted = false,
                  .keeps_records = keeps_records,
                  .nodes = 3,
                  .min_nodes = 3,
                  .max_nodes = 3,
                  .heartbeat_timeout = absl::Seconds(3),
                  .work = absl::Minutes(10),
                  .shutdown_timeout = absl::Seconds(1),
                  .workers_fail = false},
        world_(settings_, seed) {}

  Simulation& world() { return world_; }
  bool AllRun() const { return world_.running() == settings_.nodes * settings_.slots; }

  // Restarts the server until all workers run and `starts` have been started. Returns the number of servers.
  int ServersUntilStarted(int starts) {
    for (int servers = 1; servers <= kMostServers; ++servers) {
      world_.StopServer();
      world_.Run(Random(absl::Milliseconds(300)));
      world_.StartServer();
      world_.Run(absl::Milliseconds(300) + Random(absl::Milliseconds(2700)));
      if (AllRun() && world_.starts() >= starts) return servers;
    }
    return kMostServers + 1;
  }

 private:
  absl::Duration Random(absl::Duration most) { return most * std::uniform_real_distribution<double>(0, 1)(random_); }

  std::mt19937_64 random_;
  const Simulation::Settings settings_;
  Simulation world_;
};

struct Outcome {
  int most = 0;  // servers
  int all = 0;
  void Add(int servers) {
    most = std::max(most, servers);
    all += servers;
  }
};

Outcome Restarts(bool keeps_records) {
  Outcome outcome;
  for (uint64_t seed = 1; seed <= kJobs; ++seed) {
    Storm storm(keeps_records, seed);
    storm.world().Run(absl::Seconds(10));
    EXPECT_TRUE(storm.AllRun());
    for (int failures = 1; failures <= 3; ++failures) {
      storm.world().FailWorker(static_cast<int>(seed) % 3);
      outcome.Add(storm.ServersUntilStarted(6 * (failures + 1)));
    }
    EXPECT_EQ(storm.world().violation(), "") << "seed " << seed << "\n" << storm.world().history();
    if (outcome.most > kMostServers) {
      ADD_FAILURE() << "seed " << seed << ": the job starves\n" << storm.world().history();
      break;
    }
  }
  std::printf("%.2f servers for a restart, at most %d\n", outcome.all / (3.0 * kJobs), outcome.most);
  return outcome;
}

TEST(RestartStormTest, WorkerFailure_WithoutRecords_JobRestarts) { EXPECT_LE(Restarts(false).most, kMostServers); }

TEST(RestartStormTest, WorkerFailure_WithRecords_JobRestarts) { EXPECT_LE(Restarts(true).most, kMostServers); }

TEST(RestartStormTest, NewJob_WithRecords_Starts) {
  Outcome outcome;
  for (uint64_t seed = 1; seed <= kJobs && outcome.most <= kMostServers; ++seed) {
    Storm storm(true, seed);
    storm.world().Run(absl::Milliseconds(50));  // enough for none, some or all to join the first server
    outcome.Add(storm.ServersUntilStarted(6));
    EXPECT_LE(outcome.most, kMostServers) << "seed " << seed << "\n" << storm.world().history();
    EXPECT_EQ(storm.world().violation(), "");
  }
  std::printf("%.2f servers for a first round, at most %d\n", static_cast<double>(outcome.all) / kJobs, outcome.most);
}

#ifdef __SANITIZE_ADDRESS__
constexpr uint64_t kSequences = 200;
#else
constexpr uint64_t kSequences = 2'000;
#endif

// Faults during server restarts, mostly around rounds with new nodes: the server may die when only some nodes have been
// assigned to the round.
class Faults {
 public:
  explicit Faults(uint64_t seed) : random_(seed), settings_(Draw()), world_(settings_, seed) {}

  void Run() {
    world_.Run(absl::Seconds(10));
    for (int i = 0; i < 25 && world_.violation().empty(); ++i) {
      One();
      RestartServer();
    }
  }
  const Simulation& world() const { return world_; }

 private:
  int Below(int n) { return static_cast<int>(random_() % n); }
  bool OneIn(int n) { return Below(n) == 0; }
  absl::Duration Random(absl::Duration most) { return most * std::uniform_real_distribution<double>(0, 1)(random_); }

  Simulation::Settings Draw() {
    Simulation::Settings settings;
    settings.hosted = false;
    settings.keeps_records = OneIn(3);
    settings.max_nodes = 2 + Below(2);
    settings.min_nodes = 1 + Below(settings.max_nodes);
    settings.nodes = settings.max_nodes + Below(2);
    settings.slots = 1;
    settings.heartbeat_timeout = OneIn(2) ? absl::Milliseconds(800) : absl::Seconds(3);
    settings.last_call = absl::ZeroDuration();
    settings.shutdown_timeout = absl::Seconds(Below(2) * 5);
    settings.work = absl::Minutes(10);
    return settings;
  }

  // A launcher that may be replaced; fewer than max nodes are (0003-fencing.md explains the limit).
  int Replaceable() { return settings_.nodes - 1 - Below(settings_.max_nodes - 1); }

  void RestartServer() {
    world_.StopServer();
    world_.Run(Random(OneIn(4) ? settings_.heartbeat_timeout / 2 : absl::Milliseconds(50)));
    world_.StartServer();
    const int life = Below(3);
    world_.Run(Random(life == 0 ? absl::Milliseconds(150) : life * settings_.heartbeat_timeout));
  }

  // The server dies while it assigns a round with a new node, which is cut off.
  void NewNodeIsCutOff() {
    const int node = Replaceable();
    world_.Heal(node);
    world_.Kill(node);
    world_.Run(Random(settings_.heartbeat_timeout));
    if (OneIn(2)) world_.Run(2 * settings_.heartbeat_timeout);
    world_.Start(node);
    for (int i = 0; i < 40 && world_.rounds_told() == told_; ++i) world_.Run(absl::Milliseconds(5));
    told_ = world_.rounds_told();
    world_.StopServer();
    world_.Run(Random(absl::Milliseconds(40)));
    world_.Cut(node, true, true);
  }

  void One() {
    const int node = Below(settings_.nodes);
    switch (Below(8)) {
      case 0: return world_.Cut(node, true, true);
      case 1: return world_.Heal(node);
      case 2: return world_.Kill(Replaceable());
      case 3: return world_.Start(Replaceable());
      case 4: return world_.FailWorker(node);
      default: return NewNodeIsCutOff();
    }
  }

  std::mt19937_64 random_;
  const Simulation::Settings settings_;
  Simulation world_;
  int told_ = 0;
};

TEST(RestartStormTest, Faults_Random_OneWorldAtATime) {
  int starts = 0;
  for (uint64_t seed = 1; seed <= kSequences; ++seed) {
    Faults faults(seed);
    faults.Run();
    ASSERT_EQ(faults.world().violation(), "") << "seed " << seed << "\n" << faults.world().history();
    starts += faults.world().starts();
  }
  std::printf("%llu sequences, %d starts of workers\n", static_cast<unsigned long long>(kSequences), starts);
  EXPECT_GT(starts, 5 * kSequences);
}

}  // namespace
}  // namespace ddprun::testing
