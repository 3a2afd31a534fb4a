#ifndef DDPRUN_TESTS_EXPLORER_WORLD_H_
#define DDPRUN_TESTS_EXPLORER_WORLD_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/simulation/network.h"
#include "tests/simulation/simulated_launcher.h"
#include "tests/simulation/simulated_server.h"
#include "tests/simulation/timeline.h"

namespace ddprun::testing {

// Something that may happen next.
struct Choice {
  enum class Kind {
    kArrivesUp,    // the oldest packet of a connection reaches the server
    kArrivesDown,  // the same, at the launcher
    kSucceeds,     // a worker exits with 0
    kObeys,        // a worker that was asked to ends, or suspends
    kLauncherTimer,
    kServerTimer,
    kTimePasses,    // a twelfth of the heartbeat timeout
    kHeals,         // the network of a node that was cut off
    kServerStarts,  // after its end, with its records if it keeps any
    kStarts,        // a launcher that comes late
    // Faults.
    kFails,             // a worker exits with 1, or a suspended one
    kCut,               // a node is cut off from the server
    kServerEnds,        // launchers receive what it has sent
    kServerEndsAtOnce,  // messages on their way are lost
    kKilled,            // a launcher
    kLeaves,            // a launcher receives SIGTERM
    kRepeated,          // the oldest packet of a connection arrives twice
  };
  Kind kind;
  int node = 0;             // node of the launcher or worker
  uint64_t connection = 0;  // connection of a packet
  Direction direction = kUp;
  bool server_ends = false;  // kArrivesUp, kServerTimer: the server ends between a message and the next record
};

// One job on a chosen order of events: real AgentMachines, Reconnectors and a Registry in the shells of
// tests/simulation. Time passes in twelfths of the heartbeat timeout, and only when every packet that is not cut off
// has arrived and no timer is due. Connections are opened at once. Each node has one worker.
class World {
 public:
  // Timers fall on multiples of this. The heartbeat timeout is 12 s, so that a launcher without workers, which may be
  // silent for 30 s, finds its stream silent only after a round has begun without it.
  static constexpr absl::Duration kTick = absl::Seconds(1);

  struct Settings {
    int nodes = 2;
    int late = 0;  // the last nodes' launchers start at any time, the others at the beginning
    int min_nodes = 2;
    int max_nodes = 2;
    bool keeps_records = true;
    int reform = 0;  // nodes whose workers can re-form: bit i for node i
    int max_restarts = 1;
    // How often each fault may happen.
    int failures = 0;
    int cuts = 0;
    int crashes = 0;  // crashes of the server
    int deaths = 0;   // deaths of launchers
    int leaves = 0;
    int repeats = 0;
    int spared = 0;  // nodes that none of them befalls: bit i for node i
  };

  explicit World(const Settings& settings);

  std::vector<Choice> Choices() const;
  void Take(const Choice& choice);
  // True if every launcher has ended.
  bool ended() const;
  // Equal for states that have the same future.
  uint64_t Digest() const;
  // The first violated invariant, by its number in docs/model.md; empty if there is none.
  const std::string& violation() const { return violation_; }

  void KeepNotes() { timeline_.KeepNotes(); }
  std::string history() const { return timeline_.history(); }

 private:
  using Connections = std::vector<std::shared_ptr<Connection>>;

  void StartServer();
  void StartLauncher(int node);
  bool IsCut(int node) const { return !network_.Reaches(node, settings_.nodes); }
  bool IsSpared(int node) const { return (settings_.spared >> node & 1) != 0; }
  Connections Open() const;
  bool ServerHas(const Connection& connection) const;
  bool LauncherHas(const Connection& connection) const;
  // A timer of the launcher is due that does more than send a heartbeat or print.
  bool IsTimerDue(const Launcher& launcher) const;
  void PassTime();
  void EndServer();
  // Zero delays pass, and packets that nothing depends on are dropped.
  void Settle();
  void Check();
  void CheckAssigned();

  const Settings settings_;
  Timeline timeline_{1, Timeline::Order::kChosen};
  Network network_;
  rendezvous::SavedState records_;
  int rounds_told_ = 0;
  std::shared_ptr<Server> server_;  // the last one started
  std::vector<std::unique_ptr<Launcher>> launchers_;
  int ports_ = 1000;
  Settings left_;  // faults
  // State of the invariants.
  uint64_t newest_ = 0;    // the newest round that was assigned
  uint64_t accepted_ = 0;  // the newest round that a launcher accepted
  uint64_t judged_ = 0;    // assignment of the last server that was checked
  int members_ = 0;        // members of that round: bit i for node i
  int started_ = 0;        // nodes that have had workers
  int latecomers_ = 0;     // nodes whose first workers began after a verdict was sent: theirs is another job
  bool finished_ = false;  // a verdict was sent
  std::optional<bool> outcome_;
  std::string violation_;
};

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_EXPLORER_WORLD_H_
