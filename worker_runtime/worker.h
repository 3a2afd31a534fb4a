#ifndef DDPRUN_WORKER_RUNTIME_WORKER_H_
#define DDPRUN_WORKER_RUNTIME_WORKER_H_

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/steady_time.h"
#include "worker_runtime/elastic/core/shared_decisions.h"
#include "worker_runtime/env/worker_env.h"
#include "worker_runtime/process_group/process_group.h"

namespace ddprun {

class DistributedModel;
class ElasticRounds;
class TrainingState;

struct WorkerOptions {
  // Device on which this worker computes, as in ChooseDevice (process_group/choose_device.h): "cpu", "cuda" (the GPU of
  // its local rank), "auto" (that GPU if the host has one), or a specific GPU as in "cuda:1". A GPU becomes the current
  // device of the thread that runs the body.
  std::string device = "cpu";

  // Passed to torch::manual_seed before the body runs; the same on all ranks, as in Python's scripts. Training derives
  // from it a seed for each step and rank. In a loop of your own, seed with seed + rank once the model is made, for
  // random numbers that differ between ranks (dropout). Not set: each process starts with a random seed of its own.
  std::optional<uint64_t> seed = std::nullopt;

  // See ProcessGroupOptions.
  std::string backend = "";
  absl::Duration timeout = absl::Minutes(30);
  std::string interface = "";
};

// Times of the events on this worker between one round and the next. CLOCK_MONOTONIC, so times of processes of one host
// can be compared. Not set: the event did not occur.
struct RecoveryTimes {
  uint64_t round = 0;                      // the new round
  int64_t step = 0;                        // the step from which training continued
  std::optional<SteadyTime> suspended;     // the launcher's `suspend` arrived
  std::optional<SteadyTime> rolled_back;   // the group was left, and the interrupted step undone
  std::optional<SteadyTime> re_formed;     // the launcher's `re-form` arrived
  std::optional<SteadyTime> group_formed;  // InitProcessGroup returned
  std::optional<SteadyTime> state_synced;  // SyncState returned
  std::optional<SteadyTime> first_step;    // the first step of the round was committed
};

// Options of Worker::Commit.
struct CommitOptions {
  // Position between this step and the next: 0 after the step itself, larger after work that follows it and must be
  // repeated as a whole if a rank dies, such as an evaluation. Increases; starts at 0 again with the next step.
  int64_t part = 0;
  // True if the next step adds to the gradients left by this one, so that they are kept for a rollback.
  bool gradients = true;
};

// One rank of a job: the argument of a training function. It trains in one of three ways:
//
// - With Training (training.h), which needs no other call of this class. The worker keeps its process when others die,
//   and when nodes join or leave, and loses no step.
// - With one process group for the whole life of the process, as in Python: call InitProcessGroup, then use group(). If
//   a rank fails, the launcher restarts all of them.
// - In a loop of its own that keeps the process: it leaves its process group, waits for the next round, takes the state
//   of the most advanced survivor and continues (docs/design/0012-elastic-recovery.md):
//
//     int64_t step = 0;
//     const auto train_round = [&]() -> absl::Status {
//       DDPRUN_RETURN_IF_ERROR(worker.InitProcessGroup());
//       DDPRUN_ASSIGN_OR_RETURN(step, worker.SyncState(state, ddp, resume));
//       while (step < steps && !worker.suspended()) {
//         DDPRUN_RETURN_IF_ERROR(worker.group()->Try("step", [&] { ...; loss.backward(); ddp.FinishBackward(); ... }));
//         optimizer.step();
//         DDPRUN_RETURN_IF_ERROR(worker.Commit(state, ++step));
//       }
//       return step < steps ? absl::OkStatus() : worker.group()->Shutdown();
//     };
//     for (;;) {
//       DDPRUN_RETURN_IF_ERROR(worker.NextRendezvous(state, ddp));
//       const absl::Status status = train_round();
//       if (status.ok() && step == steps) return status;
//       if (!status.ok() && !worker.Recoverable(status)) return status;
//     }
//
// All workers of a job must train in the same way. Under a launcher without a worker link (torchrun, an older ddprun),
// or without a launcher, there is one round: no error is Recoverable.
//
// Threads: the training thread. Another thread receives the launcher's messages and aborts the current group.
class Worker {
 public:
  // Used by programs that do not call RunWorker. `device`: device of the group. Under a launcher, at most one worker of
  // a process may call NextRendezvous.
  explicit Worker(WorkerEnv env, WorkerOptions options = {}, c10::Device device = c10::Device(c10::DeviceType::CPU));
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Values of this round. Rank and world size change from round to round; the environment variables do not.
  const WorkerEnv& env() const { return env_; }
  const WorkerOptions& options() const { return options_; }
  const c10::Device& device() const { return device_; }  // device of the module and the batches
  // The group of InitProcessGroup or, in the functions that Training calls, of this round. Throws c10::ValueError if
  // there is none.
  const std::shared_ptr<ProcessGroup>& group() const;
  bool has_group() const { return group_ != nullptr; }

  // Creates the process group (of the round), with the options given to RunWorker; see group().
  // Errors: those of ProcessGroup::Create; Cancelled if the round ends meanwhile.
  absl::Status InitProcessGroup();

  // Replaces group(), for example by a group of fewer ranks after a failure: RunWorker shuts it down. nullptr: none.
  void set_group(std::shared_ptr<ProcessGroup> group) { group_ = std::move(group); }

  // ---- for a loop of its own that keeps the process ----

  // The first call, which comes before InitProcessGroup, announces to the launcher that this worker can re-form, and
  // returns at once: the round and rank are those of the environment. Later calls leave the round: they disconnect
  // `ddp`, end the group, roll the state back to the last Commit, inform the launcher and wait for the next round,
  // without a time limit.
  // Errors: Unavailable: the launcher ended; Cancelled: it stops this worker; FailedPrecondition: the first call came
  // after InitProcessGroup, or another Worker of this process has called it.
  absl::Status NextRendezvous(TrainingState& state, DistributedModel& ddp);

  // Collective, the first of a round: all ranks get the state of the rank with the largest committed step and part, the
  // lowest rank among equals, and connect `ddp`, with that rank's buckets. If all ranks hold the state, only its
  // checksums are compared, and it is not sent. If no rank holds a state, all call `resume`, as at a start: it loads
  // the newest checkpoint and returns its step, the same on all ranks, or nullopt if there is none.
  // Returns the number of steps that the state contains, and commits it; see committed_part().
  // Errors: those of TrainingState::Broadcast and CheckSameOnAllRanks, of `resume` and of the group. DataLoss: no rank
  // holds a state, there is no checkpoint, and a rank has lost its initial state in an earlier attempt.
  using Resume = absl::FunctionRef<absl::StatusOr<std::optional<int64_t>>()>;
  absl::StatusOr<int64_t> SyncState(TrainingState& state, DistributedModel& ddp, Resume resume);

  // Waits until the GPUs that hold the model's tensors have done the work enqueued so far, and checks the group: only
  // then are the results of NCCL's collectives known to be valid. Returns OK at once if device() is the CPU. The wait
  // ends when the group fails.
  // Errors: those of ProcessGroup::Health.
  absl::Status AwaitDevices(const TrainingState& state);

  // Marks the state as containing `step` complete steps: TrainingState::Commit. Call it after the optimizer's step,
  // without a collective in between. Calls AwaitDevices, unless that was done since the last Commit: then the gradients
  // are known to be valid. Throws like TrainingState::Commit.
  // Errors: those of AwaitDevices; the state is then not committed.
  absl::Status Commit(TrainingState& state, int64_t step, const CommitOptions& options = {});
  // nullopt: this worker holds no state.
  std::optional<int64_t> committed_step() const {
    return committed_.has_value() ? std::optional(committed_->step) : std::nullopt;
  }
  // CommitOptions::part of the committed step.
  int64_t committed_part() const { return committed_.has_value() ? committed_->part : 0; }

  // True if the launcher has ended the round. Check it after each step, so that a round that ends without a failure
  // loses no step.
  bool suspended() const;

  // True if `status`, an error of InitProcessGroup, SyncState or a step, is an error of the group rather than of this
  // rank, and a launcher can start the next round: then call NextRendezvous. Otherwise return the error.
  bool Recoverable(const absl::Status& status);

  // True if the launcher has requested a checkpoint since the last call. Other ranks may not know yet, so agree before
  // saving.
  bool TakeCheckpointRequest();
  // Informs the launcher that a checkpoint with `step` steps is on disk.
  void ReportCheckpoint(int64_t step);

  // Times of the last recovery; round 0: there was none.
  const RecoveryTimes& recovery() const { return recovery_; }

 private:
  absl::Status AnnounceRounds();
  absl::Status InitRoundsGroup(ProcessGroupOptions options);
  absl::StatusOr<CommittedPoint> Sync(TrainingState& state, DistributedModel& ddp, Resume resume,
                                      std::optional<int>* source);
  void LeaveGroup(const std::string& reason);

  WorkerEnv env_;
  const WorkerOptions options_;
  const c10::Device device_;
  std::shared_ptr<ProcessGroup> group_;
  ElasticRounds* rounds_ = nullptr;          // nullptr: NextRendezvous was not called; never deleted
  std::string failure_;                      // the Recoverable error that ended this round; empty: none
  std::optional<CommittedPoint> committed_;  // contents of the state
  bool state_lost_ = false;                  // the state is neither a committed one nor the initial one
  bool devices_awaited_ = false;             // since the last Commit
  RecoveryTimes recovery_;
};

// The main function of a trainer in one call: reads the environment, sets LibTorch's threads (OMP_NUM_THREADS, if that
// is set), device and seed, runs `body`, and shuts the process group down, if there is one.
//
//   int main() {
//     ddprun::RunWorker({.device = "auto", .seed = 1}, [](ddprun::Worker& worker) { ... });
//   }
//
// Does not return. Flushes the standard streams and exits without running LibTorch's static destructors, which take
// 80 ms. Exit code: 0 if `body` returned OK, or nothing; 1 if it returned or threw an error, which is printed in one
// line and written to the launcher's error file, so that the failure summary on every node shows it; 78 if that error
// is NonRestartable (base/non_restartable.h), so that the launcher does not restart the job; 2 if the environment is
// invalid. A worker that failed only because a peer died waits half a second for the launcher to stop it, so that the
// launcher sees the peer's exit first.
//
// Ignores SIGPIPE, and the warning signals (SIGUSR1, SIGUSR2) unless a handler is set: they announce the end of the
// job's time, and must not end the worker.
//
// With ddprun --preload, workers are forked at this call (docs/preloading.md): code in `main` before it
// runs once per node, without a rank.
[[noreturn]] void RunWorker(const WorkerOptions& options, absl::FunctionRef<absl::Status(Worker&)> body);

// Takes a body that returns nothing.
template <class Body, class = std::enable_if_t<std::is_void_v<std::invoke_result_t<Body, Worker&>>>>
[[noreturn]] void RunWorker(const WorkerOptions& options, Body&& body) {
  RunWorker(options, [&body](Worker& worker) {
    body(worker);
    return absl::OkStatus();
  });
}

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_WORKER_H_
