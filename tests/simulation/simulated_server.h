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

// A rendezvous server process: a real Registry, with streams as rendezvous::Driver has them. It listens from its
// construction until Die, and can be frozen meanwhile. Node ids must be unique across jobs.
class Server : public std::enable_shared_from_this<Server> {
 public:
  // `by_launcher`: the server runs inside a launcher. `records`: persistent state, restored here and updated at once by
  // every Persist effect; null: the server persists nothing. `rounds_told`: incremented per assigned round.
  Server(Timeline* timeline, Network* network, int host, bool by_launcher, rendezvous::SavedState* records,
         int* rounds_told);

  int host() const { return host_; }
  bool dead() const { return dead_; }

  // Accepts a launcher's connection. `in_process`: the server runs inside that launcher.
  void Accept(const std::shared_ptr<Connection>& connection, bool in_process);

  // Calls `what` at once, or in Thaw if the process is frozen.
  void WhenAwake(std::function<void()> what);
  void Freeze() { frozen_ = true; }
  void Thaw();
  // The process ends: the kernel closes its connections.
  void Die();

  void OnDeadline();
  SteadyTime NextDeadline() const { return frozen_ ? SteadyTime::InfiniteFuture() : registry_.NextDeadline(); }

  // HasLaunchers: true if a joined launcher of another process is connected; HasLeavers: if one that sent Leave is.
  bool HasLaunchers() const;
  bool HasLeavers() const;
  bool JobsEnded() const;
  // Time at which this server first sent the job's verdict; infinite if it did not.
  SteadyTime FinishedAt(const std::string& job_id) const;

  // From now on the process ends where it has sent a message and is about to write a record.
  void EndBeforeRecord() { ends_before_record_ = true; }

  // Describes the last round whose ranks were no permutation or that broke the rules of survivors (protocol 3.4, 3.8);
  // empty if there was none.
  const std::string& violation() const { return violation_; }

 private:
  // A node's last report of its surviving workers.
  struct Said {
    uint64_t incarnation = 0;
    uint64_t round = 0;  // the node's last round
    std::vector<rendezvous::Survivor> survivors;
    bool plain = false;  // its workers cannot re-form
  };
  using Key = std::tuple<std::string, std::string, uint64_t>;  // job id, node id, incarnation
  struct Stream {
    std::shared_ptr<Connection> connection;
    bool in_process = false;
    bool left = false;
    std::optional<Key> key;  // set by Join
  };

  void OnPacket(const std::shared_ptr<Connection>& connection, Packet packet);
  void OnEnd(const std::shared_ptr<Connection>& connection);
  void Note(const std::string& node_id, uint64_t incarnation, const rendezvous::LauncherMessage& message);
  // One job's assignments to a new round, each with the node's last report.
  using Places = std::vector<std::pair<rendezvous::Assignment, const Said*>>;
  void CheckRounds(const rendezvous::Effects& effects);
  void CheckRound(Places places);
  void Keep(const rendezvous::JobRecord& record);
  void CarryOut(rendezvous::Effects effects);
  void CarryOut(rendezvous::Tell tell);
  // Closes the connection from the server's side.
  void End(std::shared_ptr<Connection> connection);

  Timeline* const timeline_;
  Network* const network_;
  const int host_;
  const bool by_launcher_;
  rendezvous::SavedState* const records_;
  int* const rounds_told_;
  std::map<std::string, uint64_t> last_round_;     // key: job id
  std::map<std::string, SteadyTime> finished_at_;  // key: job id
  rendezvous::Registry registry_;
  bool frozen_ = false;
  bool dead_ = false;
  std::vector<std::function<void()>> backlog_;
  std::map<uint64_t, Stream> streams_;  // key: connection id
  std::map<Key, std::shared_ptr<Connection>> joined_;
  std::map<std::string, Said> said_;  // key: node id
  bool ends_before_record_ = false;
  std::string violation_;
};

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_SIMULATION_SIMULATED_SERVER_H_
