#ifndef DDPRUN_LAUNCHER_CORE_WORKER_SET_H_
#define DDPRUN_LAUNCHER_CORE_WORKER_SET_H_

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "rendezvous/core/messages.h"

namespace ddprun::launcher {

// Some of a node's workers, by local rank, ascending.
using LocalRanks = std::vector<int32_t>;

// How one worker ended, as the shell found it. `failure` is set unless it exited with 0.
struct WorkerEnd {
  int32_t local_rank = 0;
  std::optional<rendezvous::WorkerFailure> failure;
  std::optional<absl::Time> raised_at;  // timestamp of its error file: whole seconds, rounded down
};

// PURE: where each worker of one node stands.
//
//   kNotStarted ---> kRunning ---> kEnded         Start from kNotStarted or kEnded; Stop from kRunning or kSuspended;
//                     ^    |          ^           End and Abandon from all that are alive.
//              Resume |    | Suspend  |
//                     |    v          |
//                   kSuspended        |
//                     | (both) Stop   |
//                     +---> kStopping +
//
// Whatever concerns some ranks names them; others are left as they are. Ranks to which a call does not apply are
// ignored, so that each may be made at any time. Thread-compatible.
class WorkerSet {
 public:
  enum class State {
    kNotStarted,
    kRunning,
    kSuspended,  // alive, but outside any round: it waits for the next one
    kStopping,   // told to end
    kEnded,
  };

  explicit WorkerSet(int32_t slots);

  LocalRanks All() const;
  // Have a process: running, suspended or stopping.
  LocalRanks Alive() const;

  void Start(const LocalRanks& ranks);
  void Suspend(const LocalRanks& ranks);
  void Resume(const LocalRanks& ranks);
  void Stop(const LocalRanks& ranks);
  // The shell could not start them after all.
  void NotStarted(const LocalRanks& ranks);
  // False if that worker was not alive: it had been abandoned.
  bool End(const WorkerEnd& end);
  // They can't be ended and are no longer waited for.
  void Abandon(const LocalRanks& ranks);

  bool AnyAlive() const;
  // No worker computes: each is gone or suspended. A node whose workers are quiet is ready for the next round.
  bool Quiet() const;
  // Each worker has ended with 0.
  bool AllSucceeded() const;

  // kNotStarted for a rank that does not exist.
  State state(int32_t rank) const;
  // How a worker in kEnded ended; null if that is not known, because it was abandoned.
  const WorkerEnd* end(int32_t rank) const;

 private:
  struct Worker {
    State state = State::kNotStarted;
    std::optional<WorkerEnd> end;
  };
  static bool IsAlive(const Worker& worker) {
    return worker.state != State::kNotStarted && worker.state != State::kEnded;
  }
  const Worker* Find(int32_t rank) const;
  Worker* Find(int32_t rank) { return const_cast<Worker*>(std::as_const(*this).Find(rank)); }

  std::vector<Worker> workers_;  // by local rank
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CORE_WORKER_SET_H_
