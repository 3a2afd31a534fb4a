#ifndef DDPRUN_WORKER_RUNTIME_ELASTIC_ELASTIC_TRAINER_H_
#define DDPRUN_WORKER_RUNTIME_ELASTIC_ELASTIC_TRAINER_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker_runtime/checkpoint/checkpointer.h"
#include "worker_runtime/data/elastic_sampler.h"
#include "worker_runtime/elastic/core/agreement_schedule.h"
#include "worker_runtime/elastic/elastic_ddp.h"
#include "worker_runtime/elastic/elastic_worker.h"
#include "worker_runtime/state/training_state.h"

namespace torch::optim {
class LRScheduler;
class Optimizer;
}  // namespace torch::optim

namespace ddprun {

class GradScaler;

// Objects and functions that an ElasticTrainer trains with; the objects must outlive the trainer and `state`.
struct ElasticTraining {
  ElasticModel* model = nullptr;  // an ElasticDdp
  torch::optim::Optimizer* optimizer =
      nullptr;  // of any kind but ZeroRedundancyOptimizer, whose state is lost with a rank
  torch::optim::LRScheduler* scheduler = nullptr;  // stepped after the optimizer; nullptr: none
  ElasticSampler* sampler = nullptr;  // gets this rank and world size in each round; nullptr: the step has its own
  GradScaler* scaler = nullptr;       // steps the optimizer; the step scales its loss with it; nullptr: no scaling
  // State of the module and the optimizer, to which the trainer adds scheduler, sampler and scaler. nullptr: the
  // trainer makes one; give your own if the step changes anything else, such as an average of the parameters.
  TrainingState* state = nullptr;

  // Runs step number `step`, from 0 on: forward and backward of this rank's batch, with the gradients set to zero
  // between or before them. Returns the loss. May be called again for the same step, after a rollback of everything in
  // `state`.
  std::function<absl::StatusOr<at::Tensor>(int64_t step)> step;

  // Replaces the optimizer's step, for example with two optimizers. Must not communicate, and must not step
  // `scheduler`, which the trainer does afterwards. nullptr: the optimizer's step.
  std::function<absl::Status()> update = nullptr;

  // Evaluates the model after `steps` steps (ElasticTrainerOptions::evaluate_every), for example on samples held out
  // from training. Called on all ranks, which may communicate, with the model in evaluation mode (Module::eval) and
  // without gradients; both are restored afterwards. If a rank dies in it, all survivors repeat it from the beginning
  // in the next round, with its changes to `state` rolled back. It is also repeated after a resume from the checkpoint
  // of its step, which is written before it. Call the module itself, not the ElasticDdp, unless all ranks call it
  // equally often. nullptr: none.
  std::function<absl::Status(int64_t steps)> evaluate = nullptr;

  // Called when `steps` steps are committed, with the loss of the last. All ranks call it, except those that received
  // the step's result from another rank; it may communicate only if all do. nullptr: none.
  std::function<absl::Status(int64_t steps, const at::Tensor& loss)> committed = nullptr;
};

struct ElasticTrainerOptions {
  int64_t steps = 0;  // total optimizer steps, including those of the checkpoint that is resumed
  uint64_t seed = 0;  // random numbers of a step depend on this, the step and the rank

  CheckpointerOptions checkpoint = {};  // folder "": no checkpoints
  int64_t checkpoint_every = 100;       // steps; the last one is always saved
  int64_t evaluate_every = 100;         // steps; the last one is always evaluated

  // Interval of training time at which the ranks agree on whether the job is being stopped or a checkpoint is requested
  // (AgreementSchedule). Costs a round trip. Zero: before each step.
  absl::Duration agree_every = absl::Milliseconds(50);
};

// Trains while workers die, join or leave, as long as one survives or there is a checkpoint; with an unchanged number
// of ranks the losses are, bit for bit, those of a training without failures.
//
//   ddprun::RunElasticWorker({.device = "auto", .seed = 1}, [](ddprun::ElasticWorker& worker) -> absl::Status {
//     Net net;
//     net->to(worker.device());
//     ddprun::ElasticDdp<NetImpl> ddp(net);
//     ddprun::AdamW optimizer(ddprun::Parameters(net));
//     DDPRUN_ASSIGN_OR_RETURN(auto sampler, ddprun::ElasticSampler::Create(data.size(), {.batch_size = 32}));
//     ddprun::ElasticTrainer trainer(worker, {.model = &ddp, .optimizer = &optimizer, .sampler = &sampler,
//                                             .step = [&](int64_t) -> absl::StatusOr<at::Tensor> {
//                                               const ddprun::ElasticBatch batch = sampler.Next();
//                                               ...
//                                               at::Tensor loss = Loss(ddp(inputs), targets) * batch.loss_weight;
//                                               ddp.zero_grad();
//                                               loss.backward();
//                                               return loss;
//                                             }},
//                                    {.steps = 1000, .seed = 1, .checkpoint = {.folder = "checkpoints"}});
//     return trainer.Train();
//   });
//
// Before each step it seeds LibTorch's generators; after backward it sets buffers to rank 0's (FinishBackward), then
// makes the optimizer's step and commits. It reports its progress to the launcher (docs/worker_protocol.md 3.2): phases
// "forward", "backward", "optimizer", "sync" (the ranks agree), "checkpoint", "evaluation", and "finished" after the
// last step; and the loss of the previous step. With steps of a few milliseconds it reports only steps, checkpoints and
// evaluations. When a round ends, it rolls back the interrupted step, takes part in the next round and repeats the
// step. If no rank holds a state, all resume from the newest checkpoint. When the job is being stopped, it saves and
// returns; when only some nodes leave, their workers do. A checkpoint that can't be written (the disk is full) is
// reported on stderr, and training continues with its state in memory; kFailedSaves such failures in a row, or a
// failure of the final checkpoint, are an error.
// Threads: the training thread.
class ElasticTrainer {
 public:
  static constexpr int kFailedSaves = 5;

  ElasticTrainer(ElasticWorker& worker, ElasticTraining training, ElasticTrainerOptions options);

  // Returns OK after the last step, or after the save before a stop. Call it once.
  // Errors: InvalidArgument: a required member of ElasticTraining is missing, or an option is invalid;
  // FailedPrecondition: after a recovery, the ranks' states differ (TrainingState::CheckSameOnAllRanks); errors
  // returned by `step`, `update`, `evaluate` and `committed`; those of Checkpointer; those of the process group if
  // there is no launcher to start another round.
  absl::Status Train();

 private:
  enum class End { kDone, kStopped, kNextRound };

  absl::Status Check() const;
  absl::Status AddToState();
  absl::Status Update();
  absl::StatusOr<End> TrainRound();
  absl::StatusOr<int64_t> BeginRound();
  // Saves and evaluates between two steps, if due. Returns an End if the round does not continue.
  absl::StatusOr<std::optional<End>> BetweenSteps(int64_t step);
  absl::Status TrainStep(int64_t step);
  bool EvaluationDue(int64_t step) const;
  absl::Status Evaluate(int64_t step);
  void ReportPhase(int64_t step, const char* phase);
  absl::StatusOr<std::optional<int64_t>> Resume();
  absl::Status UseCheckpoints();
  absl::Status Save(int64_t steps, bool must);
  bool MayContinueAfterFailedSave(int64_t steps, const absl::Status& failed);
  absl::Status ReportFinished(int64_t steps);
  absl::StatusOr<at::Tensor> Step(int64_t step);

  // Requests that the ranks agreed on.
  struct Wishes {
    bool stop = false;
    bool checkpoint = false;
  };
  absl::StatusOr<Wishes> Agree(int64_t step);

  ElasticWorker& worker_;
  std::unique_ptr<TrainingState> own_state_;
  ElasticTraining training_;
  const ElasticTrainerOptions options_;
  std::unique_ptr<Checkpointer> checkpointer_;  // nullptr: not created yet, or there are no checkpoints
  std::optional<int64_t> saved_;                // newest step that all ranks know to be saved
  std::optional<int64_t> unconfirmed_;          // step being saved in the background
  int failed_saves_ = 0;                        // in a row, in this round
  bool checkpoint_wanted_ = false;
  bool recovered_ = false;  // no step was made since survivors sent their state to newcomers
  bool stopped_ = false;    // saved before a stop, in this round

  AgreementSchedule schedule_;
  // Accumulated since the ranks last agreed.
  absl::Duration training_time_;
  int64_t phases_ = 0;
  int64_t step_ = 0;            // current step
  const char* phase_ = "";      // phase begun last
  std::optional<double> loss_;  // of the last step
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_ELASTIC_ELASTIC_TRAINER_H_
