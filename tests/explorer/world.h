#ifndef DDPRUN_TESTS_EXPLORER_WORLD_H_
#define DDPRUN_TESTS_EXPLORER_WORLD_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/simulation/network.h"
#include "tests/simulation/simulated_launcher.h"
#include "tests/simulation/simulated_server.h"
#include "tests/simulation/timeline.h"

namespace ddprun::testing {

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
    int max_restarts = 1;
    int records = 1;  // 0: the server keeps none
    int reform = 0;   // nodes whose workers can re-form: bit i for node i
    int strays = 0;   // 1: packets of streams that their launcher has abandoned arrive at any time, else soon
    // How often each fault may happen.
    int failures = 0;         // a worker exits with 1, or a suspended one ends
    int cuts = 0;             // a node is cut off from the server
    int crashes = 0;          // the server ends
    int deaths = 0;           // a launcher is killed
    int leaves = 0;           // a launcher receives SIGTERM
    int repeats = 0;          // the oldest packet of a connection arrives twice
    int spared = 0;           // nodes that no fault befalls: bit i for node i
    int while_suspended = 0;  // 1: faults happen only while workers of a node are suspended
  };

  explicit World(const Settings& settings);

  // Number of events that may happen next. A world with the same history has the same ones, in the same order.
  size_t Choices() { return Possible().size(); }
  // REQUIRES: choice < Choices().
  void Take(size_t choice);
  // True if every launcher has ended.
  bool ended() const;
  // States that have the same future have the same digest (digest.cc).
  uint64_t Digest() const;
  // The first violated invariant, by its number in docs/explorer.md; empty if there is none.
  const std::string& violation() const { return violation_; }

  void KeepNotes() { timeline_.KeepNotes(); }
  std::string history() const { return timeline_.history(); }

 private:
  using Connections = std::vector<std::shared_ptr<Connection>>;
  using Event = std::function<void()>;

  std::vector<Event> Possible();
  void AddFaults(const Connections& connections, std::vector<Event>* events);

  void StartServer();
  void StartLauncher(int node);
  bool IsCut(int node) const { return !network_.Reaches(node, settings_.nodes); }
  bool IsSpared(int node) const { return (settings_.spared >> node & 1) != 0; }
  bool MayFail() const;
  Connections Open() const;
  bool ServerHas(const Connection& connection) const;
  // The launcher's place for this stream: 0 in use, n the n-th of its silent ones, -1 it has ended the stream.
  int StreamOf(const Connection& connection) const;
  // A timer of the launcher is due that does more than send a heartbeat or print.
  bool IsTimerDue(const Launcher& launcher) const;
  void PassTime();
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
  // Memory of the invariants.
  uint64_t newest_ = 0;    // the newest round that was assigned
  uint64_t accepted_ = 0;  // the newest round that a launcher accepted
  uint64_t judged_ = 0;    // the newest round of the present server that was checked
  int members_ = 0;        // nodes of that round: bit i for node i
  int started_ = 0;        // nodes that have had workers
  int latecomers_ = 0;     // nodes whose first workers began after a verdict was sent: theirs is another job
  bool finished_ = false;  // a verdict was sent
  std::optional<bool> outcome_;
  std::string violation_;
};

struct Exploration {
  size_t states = 0;
  size_t transitions = 0;
  size_t ends = 0;        // states in which all launchers have ended
  std::string violation;  // empty: none
  std::string history;    // the way to it
};

// Visits every state of the world, or stops at the first violation of an invariant or after `most` states. Then the
// fourth invariant is checked: from every state some order of events leads to the end of all launchers.
// `compare`: states of one digest are compared by the digests of their successors, which takes some times as long; a
// difference counts as a violation.
Exploration Explore(const World::Settings& settings, size_t most = 20'000'000, bool compare = false);

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_EXPLORER_WORLD_H_
