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

// One launcher process: a real AgentMachine, and as its client a real Reconnector or, if it hosts the server, a line
// within the process. What lies around them is modelled after launcher/agent.cc, launcher/rendezvous_link.cc and
// rendezvous/client/grpc_client.cc. Not used any more once it has ended.
class Launcher {
 public:
  // Who listens at the server's address: null if nobody does.
  using Listener = std::function<std::shared_ptr<Server>()>;
  // Begins to listen there, with a server in a launcher of that host; null: somebody does already, or it is another
  // host's address.
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
    std::function<void()> on_change;  // NextDeadline, or what its workers do, may have changed; may be empty
  };

  Launcher(Settings settings, Timeline* timeline, Network* network);
  ~Launcher();

  // The first call.
  void Start();

  // SIGKILL: the kernel closes what the process had open, and its workers die with it.
  void Kill();
  void Signal(int signal);
  void Freeze();
  void Thaw();
  // A worker of it exits with 1.
  void FailWorker() { workers_.Fail(); }

  bool alive() const { return alive_; }
  bool frozen() const { return frozen_; }
  const std::shared_ptr<Server>& hosted() const { return hosted_; }
  const Workers& workers() const { return workers_; }
  int fenced() const { return fenced_; }
  // How many times it was told that a round begins without it.
  int left_out() const { return left_out_; }
  // Set once it has ended by itself, not if it was killed.
  const std::optional<launcher::effect::Exit>& exit() const { return exit_; }

  // Does what is due: the launcher's timer, that of its client, the guard's.
  void OnTime();
  SteadyTime NextDeadline() const;

 private:
  using Machine = launcher::AgentMachine;

  // What comes from outside reaches a process that hangs when it goes on.
  void WhenAwake(std::function<void()> what);
  // The same after some time, unless the process has ended by then.
  void Later(absl::Duration wait, std::function<void()> what);
  template <typename Call>
  void Step(Call call);
  void Execute(const launcher::AgentEffect& effect);

  // The client.
  template <typename Call>
  void StepClient(Call call);
  void CarryOut(rendezvous::Reconnector::Effects effects);
  void Connect(const rendezvous::reconnect::Connect& connect);
  void Probe(const rendezvous::reconnect::Probe& probe);
  // What a connection that is begun now comes to: the server that takes it, null if it is refused. No answer may come.
  void Reach(std::function<void(std::shared_ptr<Server>)> answer);
  void EndStream(uint64_t stream);
  // Events of the client come from a thread of its own.
  void Post(rendezvous::ClientEvent event);
  void Handle(const rendezvous::ClientEvent& event);

  // The server in this process.
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
  uint64_t generation_ = 0;        // of client_ or the line within the process: events of an older one are dropped
  std::set<uint64_t> connecting_;  // of client_, by its number
  std::map<uint64_t, std::shared_ptr<Connection>> streams_;  // the same, open
  std::shared_ptr<Server> hosted_;
  std::shared_ptr<Connection> local_;  // to hosted_
  rendezvous::JoinFirst local_join_first_;
  bool may_take_over_ = true;
  bool took_over_ = false;
  Workers workers_;
  SteadyTime guard_kills_ = SteadyTime::InfiniteFuture();
  SteadyTime timer_from_;  // the timer is not looked at before: a busy machine is late
  bool alive_ = true;
  bool frozen_ = false;
  std::vector<std::function<void()>> backlog_;
  std::optional<std::pair<SteadyTime, SteadyTime>> lingers_;  // for all launchers, for those that leave
  int fenced_ = 0;
  int left_out_ = 0;
  std::optional<launcher::effect::Exit> exit_;
  // Dies with the process: what was to reach it is lost.
  std::shared_ptr<bool> life_ = std::make_shared<bool>(true);
};

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_SIMULATION_SIMULATED_LAUNCHER_H_
