#ifndef DDPRUN_WORKER_RUNTIME_TRAINING_H_
#define DDPRUN_WORKER_RUNTIME_TRAINING_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker_runtime/checkpoint/checkpointer.h"
#include "worker_runtime/data/batch_sampler.h"
#include "worker_runtime/ddp/distributed_model.h"
#include "worker_runtime/elastic/core/shared_decisions.h"
#include "worker_runtime/extras/metrics.h"
#include "worker_runtime/state/training_state.h"
#include "worker_runtime/worker.h"

namespace torch::optim {
class LRScheduler;
class Optimizer;
}  // namespace torch::optim

namespace ddprun {

class GradScaler;
class Training;

struct TrainingOptions {
  int64_t steps = 0;  // required: total optimizer steps, including those of the checkpoint that is resumed

  CheckpointerOptions checkpoint = {};  // folder "": no checkpoints
  int64_t checkpoint_every = 100;       // steps; the last one is always saved

  // Interval of training time at which the ranks agree on whether the job is being stopped or a checkpoint is requested
  // (AgreementSchedule). Costs a round trip. Zero: before each step.
  absl::Duration agree_every = absl::Milliseconds(50);
};

// One step, in the function given to Training::Run. Its methods throw like LibTorch, or an exception of Training's own
// that must not be caught.
class Step {
 public:
  // Number of this step, from 0 on. After a rollback the function is called again for the same step.
  int64_t number() const { return number_; }

  // This rank's next samples: sampler.Next().indices, never empty. The following Backward weights its loss so that the
  // ranks' gradients average to the gradient of the mean over the samples of all ranks. All ranks must call it equally
  // often: once in a step, or once for each Backward. `sampler` must have been added to the Training.
  std::vector<size_t> Next(BatchSampler& sampler);

  // Backward of a mean loss (one element) over the samples of the last Next, times the gradient scaler's scale, and
  // outside of an Autocast that may be alive. The first call in a step sets the gradients to zero before it, after
  // forward; later ones add to them, so divide the loss by their number. To average the sum over the ranks once, call
  // forward and Backward of all but the last under DistributedDataParallel::no_sync.
  void Backward(const at::Tensor& loss);

  // Scales this step's gradients down to a total norm of at most `max_norm`, as ClipGradNorm, after dividing them by
  // the gradient scaler's scale. Call it once, after the last Backward. Returns the total norm before, one element.
  at::Tensor ClipGradNorm(double max_norm);

  // Completes the step: buffers are set to rank 0's, the optimizer, the gradient scaler and the scheduler step, and the
  // state is committed: if a rank dies from here on, this step is not repeated. Runs at the end of the function if it
  // was not called; call it for work that must not be repeated, such as output: all ranks do that work, except those
  // that received the step's result from another rank, or fail during it, so it may communicate only if all do.
  // `also` is called after the optimizer's step and before the scheduler's, for all other changes of the state that
  // follow from it, such as an average of the parameters or the step of a second optimizer. It must not communicate.
  void Commit() { Commit(nullptr); }
  void Commit(const std::function<void()>& also);

 private:
  friend class Training;
  Step(Training& training, int64_t number) : training_(training), number_(number) {}

  void CheckNotCommitted(const char* call) const;

  Training& training_;
  const int64_t number_;
  double weight_ = 1;
  bool has_gradients_ = false;
  bool clipped_ = false;
  bool committed_ = false;
};

// Trains while workers die, join or leave, as long as one survives or there is a checkpoint; with an unchanged number
// of ranks the losses are, bit for bit, those of a training without failures.
//
//   ddprun::RunWorker({.device = "auto", .seed = 1}, [](ddprun::Worker& worker) -> absl::Status {
//     Net net;
//     net->to(worker.device());
//     ddprun::DistributedDataParallel ddp(net);
//     ddprun::AdamW optimizer(ddprun::Parameters(net));
//     ddprun::BatchSampler sampler(data.size(), {.batch_size = 32});
//     ddprun::Training training(worker, ddp, optimizer, {.steps = 1000, .checkpoint = {.folder = "checkpoints"}});
//     training.Add(sampler);
//     return training.Run([&](ddprun::Step& step) {
//       const auto [inputs, targets] = Load(data, step.Next(sampler));
//       step.Backward(Loss(ddp(inputs), targets));
//     });
//   });
//
// Before each step it seeds LibTorch's generators from WorkerOptions::seed, the step and the rank. It reports its
// progress to the launcher (docs/worker_protocol.md 3.2): phases "forward", "backward", "optimizer", "sync" (the ranks
// agree), "checkpoint", "evaluation", and "finished" after the last step; and the loss of the previous step. With steps
// of a few milliseconds it reports only steps, checkpoints and evaluations.
//
// When a round ends, it rolls back the interrupted step, takes part in the next round and repeats the step. If no rank
// holds a state, all resume from the newest checkpoint. When the job is being stopped, it saves and returns; when only
// some nodes leave, their workers do. A checkpoint that can't be written (the disk is full) is reported on stderr, and
// training continues with its state in memory; kFailedSaves such failures in a row, or a failure of the final
// checkpoint, are an error, which is NonRestartable if no rank has a checkpoint to restart from.
//
// The functions below that take an object keep a reference to it. Threads: the training thread.
class Training {
 public:
  static constexpr int kFailedSaves = 5;

  Training(Worker& worker, DistributedModel& model, torch::optim::Optimizer& optimizer, TrainingOptions options);
  Training(const Training&) = delete;
  Training& operator=(const Training&) = delete;

  // Adds objects that a step changes. They become part of state(), and are used: a scheduler is stepped after the
  // optimizer; a gradient scaler scales the loss and steps the optimizer; a sampler gets this rank and world size in
  // each round; a Metrics does not count a step twice that is repeated. At most one scheduler and one scaler. Call it
  // before Run, which returns InvalidArgument if these rules are broken, or if the optimizer has a LambdaLR that was
  // not added. LibTorch's own schedulers can't be found: one that is not added is never stepped.
  template <class... Objects>
  void Add(Objects&... objects) {
    (AddOne(objects), ...);
  }

  // The state of the module, the optimizer and everything added: what is rolled back, sent to new workers, and saved.
  // If a step changes anything else, such as an average of the parameters, add it here, and change it before Commit or
  // in it: what is changed after Commit is undone if the next step is interrupted.
  TrainingState& state() { return state_; }

  // Evaluates the model every `steps` steps, and after the last one. `evaluate` gets the number of steps made. It is
  // called on all ranks, which may communicate, with the model in evaluation mode (Module::eval) and without gradients;
  // both are restored afterwards. If a rank dies in it, all survivors repeat it from the beginning in the next round,
  // with its changes to `state()` rolled back. It is also repeated after a resume from the checkpoint of its step,
  // which is written before it. Call the module itself in it, not the DistributedDataParallel, unless all ranks call it
  // equally often.
  void EvaluateEvery(int64_t steps, std::function<absl::Status(int64_t steps)> evaluate);

  // Calls `step`, which returns nothing or an absl::Status, for each step. Returns OK after the last one, or after the
  // save before a stop: see finished(). A process can run one Training, once.
  // Errors: InvalidArgument: an option is invalid, see Add, or the ranks call Step::Next unequally; FailedPrecondition:
  // after a recovery, the ranks' states differ (TrainingState::CheckSameOnAllRanks); errors and exceptions of `step`
  // and `evaluate`; those of Checkpointer; those of the process group if there is no launcher to start another round.
  template <class StepFunction>
  absl::Status Run(StepFunction&& step) {
    if constexpr (std::is_void_v<std::invoke_result_t<StepFunction, Step&>>) {
      return RunSteps([&step](Step& of) {
        step(of);
        return absl::OkStatus();
      });
    } else {
      return RunSteps(step);
    }
  }

  // True if all steps are made. After Run has returned OK, false means that the job was stopped, and the newest
  // checkpoint has the state.
  bool finished() const { return worker_.committed_step().value_or(0) >= options_.steps; }

 private:
  friend class Step;
  using StepFunction = absl::FunctionRef<absl::Status(Step&)>;
  enum class End { kDone, kStopped, kNextRound };

  void AddOne(torch::optim::LRScheduler& scheduler);
  void AddOne(GradScaler& scaler);
  void AddOne(BatchSampler& sampler);
  void AddOne(Metrics& metrics);

  absl::Status RunSteps(StepFunction step);
  absl::Status Check() const;
  absl::StatusOr<End> TrainRound(StepFunction step);
  absl::StatusOr<int64_t> BeginRound();
  // Saves and evaluates between two steps, if due. Returns an End if the round does not continue.
  absl::StatusOr<std::optional<End>> BetweenSteps(int64_t step);
  absl::Status TrainStep(StepFunction function, int64_t number);
  void Update(const std::function<void()>& also);
  bool EvaluationDue(int64_t step) const;
  absl::Status Evaluate(int64_t step);
  uint64_t seed() const { return worker_.options().seed.value_or(0); }
  void ReportPhase(int64_t step, const char* phase);
  absl::StatusOr<std::optional<int64_t>> Resume();
  absl::Status UseCheckpoints();
  absl::Status Save(int64_t steps, bool must);
  bool MayContinueAfterFailedSave(int64_t steps, const absl::Status& failed);
  absl::Status EndAfterFailedSave(const absl::Status& failed);
  absl::Status ReportFinished(int64_t steps);

  // Requests that the ranks agreed on.
  struct Wishes {
    bool stop = false;
    bool checkpoint = false;
  };
  absl::StatusOr<Wishes> Agree(int64_t step);

  Worker& worker_;
  DistributedModel& model_;
  torch::optim::Optimizer& optimizer_;
  const TrainingOptions options_;
  TrainingState state_;
  torch::optim::LRScheduler* scheduler_ = nullptr;
  GradScaler* scaler_ = nullptr;
  std::vector<BatchSampler*> samplers_;
  std::vector<Metrics*> metrics_;
  std::function<absl::Status(int64_t)> evaluate_;  // nullptr: none
  int64_t evaluate_every_ = 1;
  absl::Status added_;  // the first error of Add and EvaluateEvery

  std::unique_ptr<Checkpointer> checkpointer_;  // nullptr: not created yet, or there are no checkpoints
  std::optional<int64_t> saved_;                // newest step that all ranks know to be saved
  std::optional<int64_t> unconfirmed_;          // step being saved in the background
  int failed_saves_ = 0;                        // failures in a row, in this round
  bool checkpoint_wanted_ = false;
  bool recovered_ = false;  // no step was made since survivors sent their state to newcomers
  bool stopped_ = false;    // saved before a stop, in this round

  AgreementSchedule schedule_;
  // Accumulated since the ranks last agreed.
  absl::Duration training_time_;
  int64_t phases_ = 0;
  // The current step.
  SteadyTime step_began_;
  int64_t step_ = 0;
  const char* phase_ = "";        // phase begun last
  unsigned scheduler_steps_ = 0;  // the scheduler's steps when it began
  absl::Status own_failure_;      // an error of Step::Commit that the group does not explain
  at::Tensor step_loss_;          // undefined: no Backward
  std::optional<double> loss_;    // loss of the last step
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_TRAINING_H_
