// Workers of two rounds never run at once, and every job ends (protocol 4.5). The cores of launchers and server run on
// simulated time, with a network that is cut and healed at random.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "tests/simulation/simulation.h"

namespace ddprun::testing {
namespace {

#ifdef __SANITIZE_ADDRESS__
constexpr uint64_t kSequences = 600;  // instrumented code takes ten times as long
#else
constexpr uint64_t kSequences = 6'000;
#endif
constexpr int kFaults = 14;

// Random faults in one simulation.
class Faults {
 public:
  explicit Faults(uint64_t seed) : random_(seed), settings_(Draw()), world_(settings_, seed) {}

  void Run() {
    world_.Run(Random(absl::Seconds(6)));
    for (int i = 0; i < kFaults && world_.violation().empty(); ++i) {
      One();
      // Cuts end around the bounds: a sixth, half, 5/6, 11/12, 1, 7/6 of the heartbeat timeout.
      world_.Run(Random(OneIn(3) ? 3 * settings_.heartbeat_timeout : settings_.heartbeat_timeout * 4 / 3));
      if (OneIn(2)) HealSomething();
      world_.Run(Random(OneIn(3) ? settings_.heartbeat_timeout : absl::Milliseconds(100)));
    }
    for (int i = 0; i < settings_.nodes; ++i) {
      world_.Heal(i);
      world_.Thaw(i);
    }
    world_.ThawServer();
    world_.StartServer();
    for (int minutes = 0; minutes < 60 && world_.violation().empty() && !world_.EveryoneEnded(); ++minutes) {
      world_.Run(absl::Minutes(1));
    }
  }

  const Simulation& world() const { return world_; }
  bool hosted() const { return settings_.hosted; }
  int storms() const { return storms_; }

 private:
  int Below(int n) { return static_cast<int>(random_() % n); }
  bool OneIn(int n) { return Below(n) == 0; }
  absl::Duration Random(absl::Duration most) { return most * std::uniform_real_distribution<double>(0, 1)(random_); }

  Simulation::Settings Draw() {
    Simulation::Settings settings;
    // Most jobs host the server in the first node's launcher; some have two launchers on that host.
    settings.hosted = !OneIn(4);
    settings.two_on_first_host = OneIn(2);
    settings.nodes = 3 + Below(2);
    settings.slots = 1 + Below(3);
    settings.keeps_records = !settings.hosted && OneIn(2);
    spares_ = !settings.hosted && OneIn(2);
    settings.max_nodes = settings.nodes - (spares_ ? 1 : 0);
    settings.min_nodes = 1 + Below(settings.max_nodes);
    settings.heartbeat_timeout = OneIn(3) ? absl::Milliseconds(800) : absl::Seconds(3);
    settings.last_call = absl::Milliseconds(Below(2) * 500);
    settings.node_cooldown = absl::Seconds(OneIn(3) ? 60 : 1 + Below(8));
    settings.shutdown_timeout = absl::Seconds(Below(3) * 5);
    settings.work = absl::Seconds(20 + Below(60));
    settings.workers_fail = OneIn(2);
    settings.plain = OneIn(3) ? 1 : Below(2) * 4;
    return settings;
  }

  void One() {
    const int node = Below(settings_.nodes);
    switch (Below(13)) {
      case 0: return world_.Kill(node);
      case 1: return world_.Start(node);
      case 2: return OneIn(2) ? world_.Stop(node) : world_.Start(node);
      case 3:
        // Often at the end or start of a round, so that the server's messages wait for the frozen launcher.
        if (OneIn(2)) {
          world_.Kill((node + 1) % settings_.nodes);
          world_.Run(Random(absl::Milliseconds(200)));
        }
        return world_.Freeze(node);
      case 4: return world_.FreezeServer();
      // Wall alternates with server stops: a server restarted behind a wall looks as if it were still down (see the
      // assumptions in protocol 4.5).
      case 5:
        if (settings_.hosted) return world_.Kill(0);
        if (spares_ && !settings_.keeps_records) return world_.Wall(node);
        return OneIn(2) ? world_.StopServer() : Storm();
      case 6: return world_.Cut(node, true, false);
      case 7: return world_.Cut(node, false, true);
      case 8:
        for (int i = 0; i < settings_.nodes; ++i) world_.Cut(i, true, true);
        return;
      case 9: return FailAgainAndAgain(node);
      default: return world_.Cut(node, true, true);
    }
  }

  // Fails a node's workers until the node is excluded, if the job can continue without it. The server may restart and
  // the node may be cut off meanwhile.
  void FailAgainAndAgain(int node) {
    for (int i = 0; i < 4; ++i) {
      world_.FailWorker(node);
      world_.Run(Random(absl::Seconds(1)));
      if (OneIn(8)) world_.StopServer();
      if (OneIn(8)) world_.Cut(node, true, OneIn(2));
      world_.Run(Random(absl::Milliseconds(300)));
      world_.StartServer();
    }
  }

  // Restarts the server repeatedly, with other faults in between.
  void Storm() {
    for (int servers = 2 + Below(6); servers > 0; --servers) {
      world_.StopServer();
      world_.Run(Random(OneIn(3) ? settings_.heartbeat_timeout / 2 : absl::Milliseconds(50)));
      world_.StartServer();
      world_.Run(Random(OneIn(2) ? settings_.heartbeat_timeout : absl::Milliseconds(200)));
      const int node = Below(settings_.nodes);
      switch (Below(8)) {
        case 0: world_.Cut(node, true, true); break;
        case 1: world_.Heal(node); break;
        case 2: world_.Kill(node); break;
        case 3: world_.Start(node); break;
        default: world_.FailWorker(node); break;
      }
    }
    ++storms_;
  }

  void HealSomething() {
    world_.ThawServer();
    world_.StartServer();
    for (int i = 0; i < settings_.nodes; ++i) {
      if (OneIn(2)) world_.Heal(i);
      if (OneIn(2)) world_.Thaw(i);
    }
  }

  std::mt19937_64 random_;
  bool spares_ = false;
  int storms_ = 0;
  const Simulation::Settings settings_;
  Simulation world_;
};

// DDPRUN_SIMULATION_SEED=first[:sequences] selects the seeds.
TEST(PartitionSimulationTest, Partitions_Random_OneWorldAtATimeAndEveryJobEnds) {
  uint64_t first = 1, sequences = kSequences;
  if (const char* text = std::getenv("DDPRUN_SIMULATION_SEED"); text != nullptr) {
    const std::string given = text;
    const size_t colon = given.find(':');
    ASSERT_TRUE(absl::SimpleAtoi(given.substr(0, colon), &first));
    sequences = 1;
    if (colon != std::string::npos) {
      ASSERT_TRUE(absl::SimpleAtoi(given.substr(colon + 1), &sequences));
    }
  }
  int starts = 0, reforms = 0, fenced = 0, takeovers = 0, hosted = 0, storms = 0, left_out = 0;
  for (uint64_t seed = first; seed < first + sequences; ++seed) {
    Faults faults(seed);
    faults.Run();
    const Simulation& world = faults.world();
    ASSERT_EQ(world.violation(), "") << "seed " << seed << "\n" << world.history();
    ASSERT_TRUE(world.EveryoneEnded()) << "seed " << seed << ": a launcher never ends\n" << world.history();
    starts += world.starts();
    reforms += world.reforms();
    fenced += world.fenced();
    left_out += world.left_out();
    storms += faults.storms();
    if (faults.hosted()) {
      ++hosted;
      takeovers += world.takeovers();
    }
  }
  std::printf(
      "seeds %llu to %llu: %d starts of workers, which went on in %d other rounds, %d launchers that were cut off "
      "stopped theirs; %d jobs hosted their "
      "server, which was begun anew %d times; %d storms of server restarts; nodes were left out %d times\n",
      static_cast<unsigned long long>(first), static_cast<unsigned long long>(first + sequences - 1), starts, reforms,
      fenced, hosted, takeovers, storms, left_out);
  EXPECT_GT(fenced, 0) << "nothing was shown";
  EXPECT_GT(reforms, 0) << "nothing was shown";
  if (sequences >= kSequences) {
    EXPECT_GT(takeovers, 0) << "nothing was shown";
    EXPECT_GT(storms, 0) << "nothing was shown";
    EXPECT_GT(left_out, 0) << "nothing was shown";
  }
}

}  // namespace
}  // namespace ddprun::testing
