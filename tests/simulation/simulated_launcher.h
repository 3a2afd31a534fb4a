#ifndef DDPRUN_TESTS_SIMULATION_SIMULATED_LAUNCHER_H_
#define DDPRUN_TESTS_SIMULATION_SIMULATED_LAUNCHER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "launcher/machine/agent_machine.h"
#include "rendezvous/client/reconnector.h"
#include "tests/simulation/network.h"
#include "tests/simulation/simulated_server.h"
#include "tests/simulation/timeline.h"
#include "tests/simulation/workers.h"

namespace ddprun::testing {

// One launcher process: a real AgentMachine with a real Reconnector, or with an in-process connection if it hosts the
// server. The code around them is modelled after launcher/agent.cc, launcher/rendezvous_link.cc and
// rendezvous/client/grpc_client.cc. Cannot be restarted after its end.
class Launcher {
 public:
  // Returns the server that listens at the server's address, or null.
  using Listener = std::function<std::shared_ptr<Server>()>;
  // Starts a server in a launcher on `host`. Returns null if the address is in use or is not an address of `host`.
  using Host = std::function<std::shared_ptr<Server>(int host)>;

  struct Settings {
    launcher::AgentSettings agent;
    int node = 0;  // for the history
    int host = 0;
    int server_host = 0;
    Listener listener;
    Host host_server;
    std::function<int()> new_port;  // for a store
    Workers::Settings workers;
    std::function<void()> on_change;  // NextDeadline or the workers' state may have changed; may be empty
  };

  Launcher(Settings settings, Timeline* timeline, Network* network);
  ~Launcher();

  // Must be called first.
  void Start();

  // SIGKILL: the kernel closes the process's connections, and its workers die with it.
  void Kill();
  void Signal(int signal);
  void Freeze();
  void Thaw();
  // The first running worker exits with 1.
  void FailWorker() { workers_.Fail(); }

  bool alive() const { return alive_; }
  bool frozen() const { return frozen_; }
  const std::shared_ptr<Server>& hosted() const { return hosted_; }
  const Workers& workers() const { return workers_; }
  int fenced() const { return fenced_; }
  // Number of ExcludedFromRound messages received.
  int left_out() const { return left_out_; }
  // Set when the launcher exits; not set if it is killed.
  const std::optional<launcher::effect::Exit>& exit() const { return exit_; }

  // Runs the timers of the launcher, its client and its guard that are due.
  void OnTime();
  SteadyTime NextDeadline() const;

 private:
  using Machine = launcher::AgentMachine;

  // Calls `what` at once, or in Thaw if the process is frozen.
  void WhenAwake(std::function<void()> what);
  // Like WhenAwake, after `wait`, unless the process has ended by then.
  void Later(absl::Duration wait, std::function<void()> what);
  template <typename Call>
  void Step(Call call);
  void Execute(const launcher::AgentEffect& effect);

  // Client.
  template <typename Call>
  void StepClient(Call call);
  void CarryOut(rendezvous::Reconnector::Effects effects);
  void Connect(const rendezvous::reconnect::Connect& connect);
  void Probe(const rendezvous::reconnect::Probe& probe);
  // Connects to the server's address. Calls `answer` with the server that accepts, or with null if the connection is
  // refused; never calls it if the network is cut.
  void Reach(std::function<void(std::shared_ptr<Server>)> answer);
  void EndStream(uint64_t stream);
  // Calls Handle later: a client's events come from its own thread.
  void Post(rendezvous::ClientEvent event);
  void Handle(const rendezvous::ClientEvent& event);

  // Server in this process.
  void TakeOver();
  void UseLocalClient(std::shared_ptr<Server> server);
  void OpenLocalStream();
  void LocalStreamOver(const std::string& reason);

  void CloseClient();
  void Linger();
  void End();
  void Changed() const;
  void Note(const std::string& text) const;

  const Settings settings_;
  Timeline* const timeline_;
  Network* const network_;
  Machine machine_;
  std::unique_ptr<rendezvous::Reconnector> client_;
  uint64_t generation_ = 0;        // number of client_ or the in-process connection; drops events of older ones
  std::set<uint64_t> connecting_;  // streams of client_ that are not open yet
  std::map<uint64_t, std::shared_ptr<Connection>> streams_;  // open streams of client_
  std::shared_ptr<Server> hosted_;
  std::shared_ptr<Connection> local_;  // to hosted_
  rendezvous::JoinFirst local_join_first_;
  bool may_take_over_ = true;
  bool took_over_ = false;
  Workers workers_;
  SteadyTime guard_kills_ = SteadyTime::InfiniteFuture();
  SteadyTime timer_from_;  // the machine's timer fires no earlier, as on a busy host
  bool alive_ = true;
  bool frozen_ = false;
  std::vector<std::function<void()>> backlog_;
  std::optional<std::pair<SteadyTime, SteadyTime>> lingers_;  // deadlines: for all launchers, for leaving ones
  int fenced_ = 0;
  int left_out_ = 0;
  std::optional<launcher::effect::Exit> exit_;
  // Expires when the process ends: its pending events are dropped.
  std::shared_ptr<bool> life_ = std::make_shared<bool>(true);
};

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_SIMULATION_SIMULATED_LAUNCHER_H_
