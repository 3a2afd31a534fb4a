#ifndef DDPRUN_TESTS_SIMULATION_WORKERS_H_
#define DDPRUN_TESTS_SIMULATION_WORKERS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/workers/link_peer.h"
#include "launcher/workers/worker_set.h"
#include "rendezvous/core/messages.h"
#include "tests/simulation/timeline.h"
#include "worker_contract/worker_link.h"

namespace ddprun::testing {

// The workers of one launcher. After Start, each process is created with a delay, as by a fork server, and waits at its
// gate. Once the gate is open, exec takes some time. Before the program begins, a worker runs no user code, and a
// signal ends it immediately or when exec returns. A running worker works for a while and may fail; after SIGTERM it
// exits immediately, late or never. Workers that can re-form also connect to the worker link and commit steps.
class Workers {
 public:
  struct Settings {
    int slots = 1;
    absl::Duration work;  // a worker succeeds after this running time
    bool fail = false;    // workers fail at random
    bool reform = false;  // workers can re-form: they keep their processes in a new round
    std::string host;
  };
  using World = std::pair<uint64_t, int>;  // round and master port
  using OnEnded = std::function<void(launcher::WorkerEnd)>;
  using OnLink = std::function<void(int32_t local_rank, launcher::LinkEvent)>;
  struct Events {
    OnEnded on_ended;  // called with a delay after a worker's end
    OnLink on_link;
    // The process was created and waits at its gate until OpenGate or Kill.
    std::function<void(int32_t local_rank)> on_created;
    std::function<void()> on_begun;  // a worker's program begins
  };

  Workers(Settings settings, Timeline* timeline, Events events);

  void Start(const launcher::LocalRanks& ranks, const rendezvous::Assignment& assignment);
  // Does nothing if the worker does not wait at its gate.
  void OpenGate(int32_t rank);
  // Workers obey immediately, late or never. A suspended worker resumes at Reform.
  void Suspend(const launcher::LocalRanks& ranks, const worker_contract::LinkSuspend& line);
  void Reform(const launcher::LocalRanks& ranks, const rendezvous::Assignment& assignment);
  void Terminate(const launcher::LocalRanks& ranks);  // SIGTERM
  void Kill(const launcher::LocalRanks& ranks);
  void KillAll();
  // The first running worker exits with 1.
  void Fail();
  // A running worker does what it was asked to do: it ends, or is suspended. Needed only if the order is chosen.
  void Obey(int32_t rank);
  void Succeed(int32_t rank) { End(rank, 0, 0); }
  // The launcher has died: all workers die, and no event is reported.
  void Vanish();

  // The worlds of workers that run their programs and are not suspended, by local rank.
  std::vector<World> worlds() const;
  // Number of times that a worker's program began.
  int starts() const { return starts_; }
  // Number of times that a worker re-formed into another round.
  int reforms() const { return reforms_; }

 private:
  enum class Phase { kAskedFor, kAtGate, kInExec, kDoomed, kRunning };
  struct Worker {
    std::optional<World> world;  // set while the process lives
    Phase phase = Phase::kAskedFor;
    rendezvous::Assignment assignment;
    bool fails = false;
    uint64_t start = 0;  // counts starts and re-forms, so that older events are ignored
    bool ends_soon = false;
    bool suspended = false;
    std::optional<uint64_t> leaves;  // the round in which it was asked to suspend
    std::optional<int64_t> step;     // committed at the start of the round, or when suspended
    SteadyTime began;
  };
  void Begin(int32_t rank);
  void SuspendNow(int32_t rank, uint64_t round);
  // Delivers a signal to a worker whose program has not begun. Returns false if the program runs.
  bool EndBeforeBegin(int32_t rank, int signal);
  // The worker begins a round.
  void Work(int32_t rank, const rendezvous::Assignment& assignment);
  // Calls `what` after `wait`, unless the worker has ended or begun another round by then.
  void Later(int32_t rank, absl::Duration wait, std::function<void(Worker*)> what);
  void End(int32_t rank, int exit_code, int signal);
  void EndLater(int32_t rank, absl::Duration wait, int exit_code, int signal);

  const Settings settings_;
  Timeline* const timeline_;
  const Events events_;
  std::vector<Worker> workers_;  // index: local rank
  int starts_ = 0;
  int reforms_ = 0;
  std::shared_ptr<bool> life_ = std::make_shared<bool>(true);
};

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_SIMULATION_WORKERS_H_
