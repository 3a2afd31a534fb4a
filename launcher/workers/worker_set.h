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

// How one worker ended, as observed by the shell. `failure` is set unless it exited with 0.
struct WorkerEnd {
  int32_t local_rank = 0;
  std::optional<rendezvous::WorkerFailure> failure;
  std::optional<absl::Time> raised_at;  // timestamp in its error file: whole seconds, rounded down
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
// A worker is aware if it can keep its process from round to round (docs/worker_protocol.md, section 5). Awareness is
// remembered per local rank: a process that replaces an aware one counts as aware before it connects. Calls ignore
// ranks to which they do not apply, so each call may be made at any time. Thread-compatible.
class WorkerSet {
 public:
  enum class State {
    kNotStarted,
    kRunning,
    kSuspending,  // asked to leave its round
    kSuspended,   // alive outside any round, waiting for the next one
    kStopping,    // asked to end
    kEnded,
  };

  explicit WorkerSet(int32_t slots);

  LocalRanks All() const;
  // Ranks that have a process.
  LocalRanks Alive() const;
  LocalRanks NotAlive() const;
  LocalRanks In(State state) const;
  // Running ranks that can be asked over the worker link to suspend.
  LocalRanks CanSuspend() const;
  // Running or suspended ranks that can be asked over the worker link to write a checkpoint.
  LocalRanks CanCheckpoint() const;

  void Start(const LocalRanks& ranks);
  void Suspend(const LocalRanks& ranks);
  // `step`: the worker's committed step, if it holds a training state. Returns false if it had not been asked to
  // suspend.
  bool Suspended(int32_t rank, std::optional<int64_t> step);
  // Marks suspended workers as running and re-forming.
  void Resume(const LocalRanks& ranks);
  void Reformed(int32_t rank);
  void Stop(const LocalRanks& ranks);
  // The shell failed to start these ranks.
  void NotStarted(const LocalRanks& ranks);
  // Returns false if that worker was not alive because it had been abandoned.
  bool End(const WorkerEnd& end);
  // Gives up waiting for workers that can't be killed. They count as stuck until End or Start is called for them.
  void Abandon(const LocalRanks& ranks);
  bool AnyStuck() const;

  // The worker's process has connected with these capabilities, or has lost its connection.
  void Connected(int32_t rank, const std::vector<std::string>& capabilities);
  void Disconnected(int32_t rank);
  // Marks all workers as aware.
  void AssumeAware();

  bool AnyAlive() const;
  // True if every worker is gone or suspended. The node is then ready for the next round.
  bool Quiet() const;
  // True if every worker has exited with 0.
  bool AllSucceeded() const;
  // CanReform: true if every worker is aware. Plain: the workers that are not.
  bool CanReform() const { return Plain().empty(); }
  LocalRanks Plain() const;
  // True if the worker was resumed and has not yet confirmed that it is part of its round.
  bool Reforming(int32_t rank) const;
  // The suspended workers.
  std::vector<rendezvous::Survivor> Survivors() const;

  // kNotStarted for a rank that does not exist.
  State state(int32_t rank) const;
  // How a worker in kEnded ended; null if unknown because it was abandoned.
  const WorkerEnd* end(int32_t rank) const;

 private:
  struct Worker {
    State state = State::kNotStarted;
    std::optional<WorkerEnd> end;
    bool aware = false;
    bool can_suspend = false;  // accepts requests to suspend: it advertised this and is connected
    bool checkpoints = false;  // likewise for checkpoint-now
    bool reforming = false;
    bool stuck = false;
    std::optional<int64_t> step;  // last committed step, while suspended
  };
  static bool IsAlive(const Worker& worker) {
    return worker.state != State::kNotStarted && worker.state != State::kEnded;
  }
  template <typename Matches>
  LocalRanks Where(Matches matches) const;
  // Resets all fields but `aware`.
  static void Reset(Worker* worker, State state, std::optional<WorkerEnd> end);
  const Worker* Find(int32_t rank) const;
  Worker* Find(int32_t rank) { return const_cast<Worker*>(std::as_const(*this).Find(rank)); }

  std::vector<Worker> workers_;  // indexed by local rank
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_WORKERS_WORKER_SET_H_
