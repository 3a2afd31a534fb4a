#ifndef DDPRUN_TESTS_SIMULATION_SIMULATED_SERVER_H_
#define DDPRUN_TESTS_SIMULATION_SIMULATED_SERVER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "rendezvous/core/registry.h"
#include "tests/simulation/network.h"
#include "tests/simulation/timeline.h"

namespace ddprun::testing {

// A rendezvous server of any number of jobs, whose node ids differ: a real Registry, with streams as rendezvous::Driver
// has them. It listens from its construction
// until Die; its process may hang meanwhile.
class Server : public std::enable_shared_from_this<Server> {
 public:
  // `by_launcher`: it lives in a launcher. `records`: what it goes on with and keeps; null: it keeps nothing. A record
  // is safe at once. `rounds_told` counts the rounds that it gives out.
  Server(Timeline* timeline, Network* network, int host, bool by_launcher, rendezvous::SavedState* records,
         int* rounds_told);

  int host() const { return host_; }
  bool dead() const { return dead_; }

  // A launcher connects; `in_process`: the one in which this server lives.
  void Accept(const std::shared_ptr<Connection>& connection, bool in_process);

  // What is to be done when the process goes on: at once, or after Thaw.
  void WhenAwake(std::function<void()> what);
  void Freeze() { frozen_ = true; }
  void Thaw();
  // The process ends: the kernel closes its connections.
  void Die();

  void OnDeadline();
  SteadyTime NextDeadline() const { return frozen_ ? SteadyTime::InfiniteFuture() : registry_.NextDeadline(); }

  // Streams of launchers in other processes that have joined, and those of them that said Leave.
  bool HasLaunchers() const;
  bool HasLeavers() const;
  bool JobsEnded() const;
  // When this server first told the verdict of that job; infinite: it did not.
  SteadyTime FinishedAt(const std::string& job_id) const;

  // Empty: ranks of each round were a permutation, and no round broke the rules of survivors (protocol 3.4, 3.8).
  const std::string& violation() const { return violation_; }

 private:
  // What a node said last of its survivors.
  struct Said {
    uint64_t incarnation = 0;
    uint64_t round = 0;  // its last one
    std::vector<rendezvous::Survivor> survivors;
    bool plain = false;
  };
  using Key = std::tuple<std::string, std::string, uint64_t>;  // job id, node id, incarnation
  struct Stream {
    std::shared_ptr<Connection> connection;
    bool in_process = false;
    bool left = false;
    std::optional<Key> key;  // once it has joined
  };

  void OnPacket(const std::shared_ptr<Connection>& connection, Packet packet);
  void OnEnd(const std::shared_ptr<Connection>& connection);
  void Note(const std::string& node_id, uint64_t incarnation, const rendezvous::LauncherMessage& message);
  // What one job's nodes are told of a new round.
  using Places = std::vector<std::pair<rendezvous::Assignment, const Said*>>;
  void CheckRounds(const rendezvous::Effects& effects);
  void CheckRound(Places places);
  void Keep(const rendezvous::JobRecord& record);
  void CarryOut(rendezvous::Effects effects);
  void CarryOut(rendezvous::Tell tell);
  // From here.
  void End(std::shared_ptr<Connection> connection);

  Timeline* const timeline_;
  Network* const network_;
  const int host_;
  const bool by_launcher_;
  rendezvous::SavedState* const records_;
  int* const rounds_told_;
  std::map<std::string, uint64_t> last_round_;     // by job id
  std::map<std::string, SteadyTime> finished_at_;  // the same
  rendezvous::Registry registry_;
  bool frozen_ = false;
  bool dead_ = false;
  std::vector<std::function<void()>> backlog_;
  std::map<uint64_t, Stream> streams_;  // by the connection's number
  std::map<Key, std::shared_ptr<Connection>> joined_;
  std::map<std::string, Said> said_;  // by node id
  std::string violation_;
};

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_SIMULATION_SIMULATED_SERVER_H_
