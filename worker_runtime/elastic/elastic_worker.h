#ifndef DDPRUN_WORKER_RUNTIME_ELASTIC_ELASTIC_WORKER_H_
#define DDPRUN_WORKER_RUNTIME_ELASTIC_ELASTIC_WORKER_H_

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/steady_time.h"
#include "worker_runtime/elastic/core/state_source.h"
#include "worker_runtime/elastic/core/step_seed.h"
#include "worker_runtime/elastic/elastic_ddp.h"
#include "worker_runtime/elastic/elastic_rounds.h"
#include "worker_runtime/process_group/process_group.h"
#include "worker_runtime/state/training_state.h"
#include "worker_runtime/worker.h"

namespace ddprun {

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

// Options of ElasticWorker::Commit.
struct CommitOptions {
  // Position between this step and the next: 0 after the step itself, larger after work that follows it and must be
  // repeated as a whole if a rank dies, such as an evaluation. Increases; starts at 0 again with the next step.
  int64_t part = 0;
  // True if the next step adds to the gradients left by this one, so that they are kept for a rollback.
  bool gradients = true;
};

// A worker that keeps its process when others die, and when nodes join or leave: it leaves its process group, waits for
// the next round, takes the state of the most advanced survivor and continues training
// (docs/design/0012-elastic-recovery.md). ElasticTrainer is a training loop made of these calls; a custom loop looks
// like this:
//
//   int64_t step = 0;
//   const auto train_round = [&]() -> absl::Status {
//     DDPRUN_RETURN_IF_ERROR(worker.InitProcessGroup());
//     DDPRUN_ASSIGN_OR_RETURN(step, worker.SyncState(state, ddp, resume));
//     while (step < steps && !worker.suspended()) {
//       DDPRUN_RETURN_IF_ERROR(worker.group()->Try("step", [&] { ...; loss.backward(); ddp.FinishBackward(); ... }));
//       optimizer.step();
//       DDPRUN_RETURN_IF_ERROR(worker.Commit(state, ++step));
//     }
//     return step < steps ? absl::OkStatus() : worker.group()->Shutdown();
//   };
//   for (;;) {
//     DDPRUN_RETURN_IF_ERROR(worker.NextRendezvous(state, ddp));
//     const absl::Status status = train_round();
//     if (status.ok() && step == steps) return status;
//     if (!status.ok() && !worker.Recoverable(status)) return status;
//   }
//
// Under a launcher without a worker link (torchrun, an older ddprun), or without a launcher, there is one round: no
// error is Recoverable, and the program ends as it would without this class.
//
// Threads: the training thread. Another thread receives the launcher's messages and aborts the current group.
class ElasticWorker {
 public:
  // All arguments must outlive the object. Created by RunElasticWorker.
  ElasticWorker(Worker& worker, const WorkerOptions& options, ElasticRounds& rounds);
  ~ElasticWorker();
  ElasticWorker(const ElasticWorker&) = delete;
  ElasticWorker& operator=(const ElasticWorker&) = delete;

  // Values of this round. Rank and world size change from round to round; the environment variables do not.
  const WorkerEnv& env() const { return worker_.env; }
  const std::shared_ptr<ProcessGroup>& group() const { return worker_.group; }  // nullptr before InitProcessGroup
  const c10::Device& device() const { return worker_.device; }

  // The first call returns at once: the round and rank are those of the environment. Later calls leave the round: they
  // end the DistributedDataParallel and the group, roll the state back to the last Commit, inform the launcher and wait
  // for the next round, without a time limit.
  // Errors: Unavailable: the launcher ended; Cancelled: it stops this worker.
  absl::Status NextRendezvous(TrainingState& state, ElasticModel& ddp);

  // Creates the round's process group, with the options given to RunElasticWorker; see group().
  // Errors: those of ProcessGroup::Create; Cancelled if the round ends meanwhile.
  absl::Status InitProcessGroup();

  // Collective, the first of a round: all ranks get the state of the rank with the largest committed step and part, the
  // lowest rank among equals, and build `ddp` with its buckets. If all ranks hold that state, only its checksums are
  // compared, and the state is not sent. If no rank holds a state, all call `resume`, as at a start: it loads the
  // newest checkpoint and returns its step, the same on all ranks, or nullopt if there is none.
  // Returns the number of steps that the state contains, and commits it; see committed_part().
  // Errors: those of TrainingState::Broadcast and CheckSameOnAllRanks, of `resume` and of the group. DataLoss: no rank
  // holds a state, there is no checkpoint, and a rank has lost its initial state in an earlier attempt.
  using Resume = absl::FunctionRef<absl::StatusOr<std::optional<int64_t>>()>;
  absl::StatusOr<int64_t> SyncState(TrainingState& state, ElasticModel& ddp, Resume resume);

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
  bool suspended() const { return rounds_.suspended(); }

  // True if `status`, an error of InitProcessGroup, SyncState or a step, is an error of the group rather than of this
  // rank, and a launcher can start the next round: then call NextRendezvous. Otherwise return the error.
  bool Recoverable(const absl::Status& status);

  // True if the launcher has requested a checkpoint since the last call. Other ranks may not know yet, so agree before
  // saving.
  bool TakeCheckpointRequest() { return rounds_.TakeCheckpointRequest(); }
  // Informs the launcher that a checkpoint with `step` steps is on disk.
  void ReportCheckpoint(int64_t step);

  // Times of the last recovery; round 0: there was none.
  const RecoveryTimes& recovery() const { return recovery_; }

 private:
  absl::StatusOr<CommittedPoint> Sync(TrainingState& state, ElasticModel& ddp, Resume resume,
                                      std::optional<int>* source);
  void LeaveGroup(const std::string& reason);

  Worker& worker_;
  const ProcessGroupOptions options_;
  ElasticRounds& rounds_;
  bool began_ = false;
  std::string failure_;                      // the Recoverable error that ended this round; empty: none
  std::optional<CommittedPoint> committed_;  // contents of the state
  bool state_lost_ = false;                  // the state is neither a committed one nor the initial one
  bool devices_awaited_ = false;             // since the last Commit
  RecoveryTimes recovery_;
};

// Ignores the warning signals (SIGUSR1, SIGUSR2) unless a handler is set: an elastic worker receives these warnings
// over the worker link, and the signals must not end it. RunElasticWorker calls it.
void IgnoreWarningSignals();

// RunWorker for an elastic worker: announces to the launcher at the start that this worker can re-form. Does not form a
// group.
//
//   int main() {
//     ddprun::RunElasticWorker({.seed = 1}, [](ddprun::ElasticWorker& worker) -> absl::Status { ... });
//   }
//
// Calls IgnoreWarningSignals. REQUIRES: the worker link has not been used (ReportProgress, StopRequested, RunWorker).
[[noreturn]] void RunElasticWorker(WorkerOptions options, absl::FunctionRef<absl::Status(ElasticWorker&)> body);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_ELASTIC_ELASTIC_WORKER_H_
