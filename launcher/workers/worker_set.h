#ifndef DDPRUN_LAUNCHER_WORKERS_WORKER_SET_H_
#define DDPRUN_LAUNCHER_WORKERS_WORKER_SET_H_

#include <cstdint>
#include <optional>
#include <string>
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
//                +----------> kEnded <----------+        Start from kNotStarted or kEnded; Stop, End and Abandon from
//                |              |  Start        |        all that are alive. `kNotStarted` is left by Start alone.
//                |              v    Stop       |
//                |           kRunning ----> kStopping
//                |    Resume ^   | Suspend    ^
//                |           |   v            | Stop
//                |           |  kSuspending --+
//                |           |   | Suspended  |
//                +-------- kSuspended --------+
//
// A worker is aware if it can keep its process from round to round (docs/worker_protocol.md, section 5). That is
// remembered for its local rank: a process that takes the place of an aware one counts as aware before it says so.
// Whatever concerns some ranks names them; others are left as they are. Ranks to which a call does not apply are
// ignored, so that each may be made at any time. Thread-compatible.
class WorkerSet {
 public:
  enum class State {
    kNotStarted,
    kRunning,
    kSuspending,  // told to leave its round
    kSuspended,   // alive, but outside any round: it waits for the next one
    kStopping,    // told to end
    kEnded,
  };

  explicit WorkerSet(int32_t slots);

  LocalRanks All() const;
  // Have a process.
  LocalRanks Alive() const;
  LocalRanks NotAlive() const;
  LocalRanks In(State state) const;
  // Run, and can be told over the worker link to suspend.
  LocalRanks CanSuspend() const;
  // Run or wait for the next round, and can be told over the worker link to write a checkpoint.
  LocalRanks CanCheckpoint() const;

  void Start(const LocalRanks& ranks);
  void Suspend(const LocalRanks& ranks);
  // With its committed step, if it holds a training state. False if it had not been told to suspend.
  bool Suspended(int32_t rank, std::optional<int64_t> step);
  // They are re-forming from now on.
  void Resume(const LocalRanks& ranks);
  void Reformed(int32_t rank);
  void Stop(const LocalRanks& ranks);
  // The shell could not start them after all.
  void NotStarted(const LocalRanks& ranks);
  // False if that worker was not alive: it had been abandoned.
  bool End(const WorkerEnd& end);
  // They can't be ended and are no longer waited for.
  void Abandon(const LocalRanks& ranks);

  // The worker's process has connected, and these are its capabilities; or has no connection any more.
  void Connected(int32_t rank, const std::vector<std::string>& capabilities);
  void Disconnected(int32_t rank);
  // All are aware from now on.
  void AssumeAware();

  bool AnyAlive() const;
  // No worker computes: each is gone or suspended. A node whose workers are quiet is ready for the next round.
  bool Quiet() const;
  // Each worker has ended with 0.
  bool AllSucceeded() const;
  // Every worker is aware; those that are not.
  bool CanReform() const { return Plain().empty(); }
  LocalRanks Plain() const;
  // It was resumed, and has not said since that it is part of its round.
  bool Reforming(int32_t rank) const;
  // The suspended ones.
  std::vector<rendezvous::Survivor> Survivors() const;

  // kNotStarted for a rank that does not exist.
  State state(int32_t rank) const;
  // How a worker in kEnded ended; null if that is not known, because it was abandoned.
  const WorkerEnd* end(int32_t rank) const;

 private:
  struct Worker {
    State state = State::kNotStarted;
    std::optional<WorkerEnd> end;
    bool aware = false;
    bool told_by_link = false;  // to suspend: its process said so, and is connected
    bool checkpoints = false;   // the same for checkpoint-now
    bool reforming = false;
    std::optional<int64_t> step;  // committed, while it is suspended
  };
  static bool IsAlive(const Worker& worker) {
    return worker.state != State::kNotStarted && worker.state != State::kEnded;
  }
  template <typename Matches>
  LocalRanks Where(Matches matches) const;
  // Of its process nothing is left but how it ended.
  static void Reset(Worker* worker, State state, std::optional<WorkerEnd> end);
  const Worker* Find(int32_t rank) const;
  Worker* Find(int32_t rank) { return const_cast<Worker*>(std::as_const(*this).Find(rank)); }

  std::vector<Worker> workers_;  // by local rank
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_WORKERS_WORKER_SET_H_
