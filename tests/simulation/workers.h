#ifndef DDPRUN_TESTS_SIMULATION_WORKERS_H_
#define DDPRUN_TESTS_SIMULATION_WORKERS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/workers/link_event.h"
#include "launcher/workers/worker_set.h"
#include "rendezvous/core/messages.h"
#include "tests/simulation/timeline.h"
#include "worker_contract/worker_link.h"

namespace ddprun::testing {

// The workers of one launcher. A process is created some time after Start (as by a fork server), waits at its gate, and
// executes its program for some time before that begins: until then it runs no user code, and a signal ends it at once
// or when the exec would have ended. Then workers work for a while, fail now and then, and end after SIGTERM at once,
// late or never.
// Those that can re-form connect to the worker link some time after they have begun, and make steps that they commit.
class Workers {
 public:
  struct Settings {
    int slots = 1;
    absl::Duration work;  // one that ran for so long has succeeded
    bool fail = false;    // now and then
    bool reform = false;  // they can keep their processes
    std::string host;
  };
  using World = std::pair<uint64_t, int>;  // round and master port
  using OnEnded = std::function<void(launcher::WorkerEnd)>;
  using OnLink = std::function<void(int32_t local_rank, launcher::LinkEvent)>;
  struct Events {
    OnEnded on_ended;  // some time after a worker's end
    OnLink on_link;
    // This process waits at its gate: OpenGate or Kill answers.
    std::function<void(int32_t local_rank)> on_created;
    std::function<void()> on_begun;  // the program of one begins
  };

  Workers(Settings settings, Timeline* timeline, Events events);

  void Start(const launcher::LocalRanks& ranks, const rendezvous::Assignment& assignment);
  // Ignored if this worker does not wait at its gate any more.
  void OpenGate(int32_t rank);
  // Over the link: they are suspended at once, late or never, and go on when they are told to.
  void Suspend(const launcher::LocalRanks& ranks, const worker_contract::LinkSuspend& line);
  void Reform(const launcher::LocalRanks& ranks, const rendezvous::Assignment& assignment);
  void Terminate(const launcher::LocalRanks& ranks);  // SIGTERM
  void Kill(const launcher::LocalRanks& ranks);
  void KillAll();
  // The first one that runs exits with 1.
  void Fail();
  // All die, and nobody is told: the launcher has died.
  void Vanish();

  // Of those whose programs run and are not suspended, by local rank.
  std::vector<World> worlds() const;
  // How many times the program of one began.
  int starts() const { return starts_; }
  // How many times one went on in another round.
  int reforms() const { return reforms_; }

 private:
  enum class Phase { kAskedFor, kAtGate, kInExec, kDoomed, kRunning };
  struct Worker {
    std::optional<World> world;  // while it lives
    Phase phase = Phase::kAskedFor;
    rendezvous::Assignment assignment;
    bool fails = false;
    uint64_t start = 0;  // which of its starts, or rounds that it went on in, it was
    bool ends_soon = false;
    bool suspended = false;
    std::optional<int64_t> step;  // committed when it began its round
    SteadyTime began;
  };
  void Begin(int32_t rank);
  // A signal reached it before its program began. False if its program runs.
  bool EndBeforeBegin(int32_t rank, int signal);
  // It begins a round.
  void Work(int32_t rank, const rendezvous::Assignment& assignment);
  // After some time, unless it has ended or begun another round by then.
  void Later(int32_t rank, absl::Duration wait, std::function<void(Worker*)> what);
  void End(int32_t rank, int exit_code, int signal);
  // After some time, unless the worker has ended by then, or been started anew.
  void EndLater(int32_t rank, absl::Duration wait, int exit_code, int signal);

  const Settings settings_;
  Timeline* const timeline_;
  const Events events_;
  std::vector<Worker> workers_;  // by local rank
  int starts_ = 0;
  int reforms_ = 0;
  std::shared_ptr<bool> life_ = std::make_shared<bool>(true);
};

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_SIMULATION_WORKERS_H_
