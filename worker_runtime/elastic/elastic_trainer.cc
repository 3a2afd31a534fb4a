#include "worker_runtime/elastic/elastic_trainer.h"

#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>
#include <torch/optim/schedulers/lr_scheduler.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "base/steady_time.h"
#include "worker_contract/phase_names.h"
#include "worker_runtime/amp/grad_scaler.h"
#include "worker_runtime/base/launcher_link.h"
#include "worker_runtime/base/status_macros.h"
#include "worker_runtime/base/torch_try.h"
#include "worker_runtime/elastic/core/step_seed.h"
#include "worker_runtime/optim/scheduler_steps.h"
#include "worker_runtime/report_progress.h"
#include "worker_runtime/stop_requested.h"

namespace ddprun {
namespace {

using worker_contract::kBackwardPhase;
using worker_contract::kCheckpointPhase;
using worker_contract::kEvaluationPhase;
using worker_contract::kFinishedPhase;
using worker_contract::kForwardPhase;
using worker_contract::kOptimizerPhase;
using worker_contract::kSyncPhase;

// Value of CommitOptions::part.
constexpr int64_t kEvaluated = 1;

// Sets a module to evaluation mode. The destructor restores the mode of each submodule: some may be frozen.
class EvaluationMode {
 public:
  explicit EvaluationMode(torch::nn::Module& module) {
    for (std::shared_ptr<torch::nn::Module>& part : module.modules()) {
      const bool training = part->is_training();
      before_.emplace_back(std::move(part), training);
    }
    module.eval();
  }
  ~EvaluationMode() {
    // Setting a module's mode sets those of its submodules, which follow it in this list.
    for (const auto& [part, training] : before_) part->train(training);
  }
  EvaluationMode(const EvaluationMode&) = delete;
  EvaluationMode& operator=(const EvaluationMode&) = delete;

 private:
  std::vector<std::pair<std::shared_ptr<torch::nn::Module>, bool>> before_;
};

}  // namespace

ElasticTrainer::ElasticTrainer(ElasticWorker& worker, ElasticTraining training, ElasticTrainerOptions options)
    : worker_(worker), training_(std::move(training)), options_(std::move(options)), schedule_(options_.agree_every) {}

absl::Status ElasticTrainer::Check() const {
  if (training_.model == nullptr || training_.step == nullptr) {
    return absl::InvalidArgumentError("ElasticTraining needs a model and a step");
  }
  if (training_.optimizer == nullptr && training_.update == nullptr) {
    return absl::InvalidArgumentError("ElasticTraining needs an optimizer or an update");
  }
  if (training_.scaler != nullptr && (training_.optimizer == nullptr || training_.update != nullptr)) {
    return absl::InvalidArgumentError("ElasticTraining: a scaler needs an optimizer, and no update beside it");
  }
  if (options_.steps < 0 || options_.checkpoint_every < 1 || options_.evaluate_every < 1 ||
      options_.agree_every < absl::ZeroDuration()) {
    return absl::InvalidArgumentError(
        "ElasticTrainerOptions: steps and agree_every must not be negative, checkpoint_every and evaluate_every must "
        "be at "
        "least 1");
  }
  return absl::OkStatus();
}

// Adds the objects that the trainer changes in each step, so that they are rolled back and sent to new workers.
absl::Status ElasticTrainer::AddToState() {
  if (training_.state == nullptr) {
    own_state_ = std::make_unique<TrainingState>(training_.model->base_module(), training_.optimizer);
    training_.state = own_state_.get();
  }
  TrainingState& state = *training_.state;
  if (training_.optimizer != nullptr && training_.optimizer != state.optimizer()) {
    return absl::InvalidArgumentError(
        "ElasticTraining: the optimizer is not the one of its TrainingState, so new workers would not get its state");
  }
  if (training_.scheduler != nullptr) DDPRUN_RETURN_IF_ERROR(state.AddScheduler(*training_.scheduler));
  if (training_.scaler != nullptr) DDPRUN_RETURN_IF_ERROR(state.AddScaler(*training_.scaler));
  return training_.sampler == nullptr ? absl::OkStatus() : state.AddSampler(*training_.sampler);
}

absl::Status ElasticTrainer::Train() {
  DDPRUN_RETURN_IF_ERROR(Check());
  DDPRUN_RETURN_IF_ERROR(AddToState());
  // From here on SIGTERM does not end this process, which saves first. Not without a link: only the signal could then
  // end the wait for a group that can no longer be formed.
  if (LauncherLink::OfProcess().connected()) TimeUntilStop();
  training_.model->set_on_pass(
      [this](bool backward) { ReportPhase(step_, backward ? kBackwardPhase : kForwardPhase); });
  const auto forget = absl::MakeCleanup([this] { training_.model->set_on_pass(nullptr); });
  for (;;) {
    const absl::Status begins = worker_.NextRendezvous(*training_.state, *training_.model);
    // Everything is saved; the worker was only waiting to learn whether some nodes leave or all.
    if (absl::IsCancelled(begins) && stopped_) return absl::OkStatus();
    DDPRUN_RETURN_IF_ERROR(begins);
    stopped_ = false;
    const absl::StatusOr<End> end = TrainRound();
    if (end.ok() && *end != End::kNextRound) return absl::OkStatus();
    if (!end.ok() && !worker_.Recoverable(end.status())) return end.status();
  }
}

absl::StatusOr<ElasticTrainer::End> ElasticTrainer::TrainRound() {
  DDPRUN_ASSIGN_OR_RETURN(int64_t step, BeginRound());
  for (;;) {
    DDPRUN_ASSIGN_OR_RETURN(const std::optional<End> end, BetweenSteps(step));
    if (end.has_value()) return *end;
    if (step >= options_.steps) break;
    DDPRUN_RETURN_IF_ERROR(TrainStep(step++));
    // Checked after a step, because state that a newcomer lacks, for example an unregistered schedule, takes effect
    // there.
    if (std::exchange(recovered_, false)) {
      DDPRUN_RETURN_IF_ERROR(worker_.group()->Try(
          "first step of the round", [&] { return training_.state->CheckSameOnAllRanks(*worker_.group()); }));
    }
    if (worker_.suspended()) return End::kNextRound;
  }
  DDPRUN_RETURN_IF_ERROR(ReportFinished(step));
  // Here, and not in RunWorker: a rank that dies now is replaced, and the newcomer receives the final state.
  DDPRUN_RETURN_IF_ERROR(worker_.group()->Shutdown());
  return End::kDone;
}

absl::StatusOr<int64_t> ElasticTrainer::BeginRound() {
  DDPRUN_RETURN_IF_ERROR(worker_.InitProcessGroup());
  if (training_.sampler != nullptr) training_.sampler->SetWorld(worker_.env().rank, worker_.env().world_size);
  // Newcomers do not have this knowledge of the survivors: the step may be saved once more, and the duration of steps
  // is measured again.
  saved_ = std::nullopt;
  unconfirmed_ = std::nullopt;
  failed_saves_ = 0;
  bool resumed = false;
  DDPRUN_ASSIGN_OR_RETURN(const int64_t step, worker_.SyncState(*training_.state, *training_.model, [&] {
    resumed = true;
    return Resume();
  }));
  if (resumed) {
    saved_ = step;
  } else {
    DDPRUN_RETURN_IF_ERROR(UseCheckpoints());
  }
  recovered_ = !resumed;
  schedule_.StartRound(step);
  training_time_ = absl::ZeroDuration();
  phases_ = 0;
  phase_ = "";
  return step;
}

absl::StatusOr<std::optional<ElasticTrainer::End>> ElasticTrainer::BetweenSteps(int64_t step) {
  const bool last = step >= options_.steps;
  const bool evaluate = EvaluationDue(step);
  Wishes wishes;
  // Agrees before each evaluation too, so that none begins that a stop would interrupt.
  if (evaluate || (!last && schedule_.Due(step))) {
    DDPRUN_ASSIGN_OR_RETURN(wishes, Agree(step));
  }
  const bool due = step > 0 && (last || step % options_.checkpoint_every == 0);
  // The checkpoint that this round was resumed from satisfies the request.
  if (wishes.checkpoint && checkpointer_ != nullptr && saved_ == step) worker_.ReportCheckpoint(step);
  if (due || wishes.stop || wishes.checkpoint) DDPRUN_RETURN_IF_ERROR(Save(step, /*must=*/last || wishes.stop));
  if (wishes.stop) {
    DDPRUN_RETURN_IF_ERROR(ReportFinished(step));
    DDPRUN_RETURN_IF_ERROR(worker_.group()->Shutdown());
    stopped_ = true;
    return TimeUntilStop() < absl::InfiniteDuration() ? End::kStopped : End::kNextRound;
  }
  if (!evaluate) return std::nullopt;
  DDPRUN_RETURN_IF_ERROR(Evaluate(step));
  if (worker_.suspended() && !last) return End::kNextRound;
  return std::nullopt;
}

bool ElasticTrainer::EvaluationDue(int64_t step) const {
  if (training_.evaluate == nullptr || step == 0 || worker_.committed_part() >= kEvaluated) return false;
  return step >= options_.steps || step % options_.evaluate_every == 0;
}

absl::Status ElasticTrainer::Evaluate(int64_t step) {
  ReportProgress({.step = step, .phase = kEvaluationPhase, .loss = loss_});
  DDPRUN_RETURN_IF_ERROR(worker_.group()->Try("evaluation", [&]() -> absl::Status {
    const EvaluationMode mode(training_.model->base_module());
    const at::NoGradGuard no_grad;
    // Uses a different seed than the following step.
    at::manual_seed(StepSeed(~options_.seed, step, worker_.env().rank));
    DDPRUN_RETURN_IF_ERROR(training_.evaluate(step));
    DDPRUN_RETURN_IF_ERROR(worker_.AwaitDevices(*training_.state));
    // The evaluation counts as done only when it has returned on all ranks.
    return worker_.group()->Barrier();
  }));
  return worker_.Commit(*training_.state, step, {.part = kEvaluated, .gradients = false});
}

absl::Status ElasticTrainer::TrainStep(int64_t step) {
  const SteadyTime began = SteadyNow();
  DDPRUN_ASSIGN_OR_RETURN(const at::Tensor loss, Step(step));
  DDPRUN_RETURN_IF_ERROR(worker_.Commit(*training_.state, step + 1, {.gradients = false}));
  loss_ = loss.numel() == 1 ? std::optional(loss.item<double>()) : std::nullopt;
  training_time_ += SteadyNow() - began;
  if (training_.committed == nullptr) return absl::OkStatus();
  return worker_.group()->Try("after a step", [&] { return training_.committed(step + 1, loss); });
}

absl::StatusOr<at::Tensor> ElasticTrainer::Step(int64_t step) {
  if (!schedule_.reports_phases() && schedule_.ReportsStep(step)) ReportProgress({.step = step, .loss = loss_});
  step_ = step;
  ReportPhase(step, kForwardPhase);
  at::Tensor loss;
  DDPRUN_RETURN_IF_ERROR(worker_.group()->Try("training step", [&]() -> absl::Status {
    at::manual_seed(StepSeed(options_.seed, step, worker_.env().rank));
    DDPRUN_ASSIGN_OR_RETURN(loss, training_.step(step));
    loss = loss.detach();
    training_.model->FinishBackward();
    // NCCL's collectives may still be running, and fail. The optimizer must not use their gradients then.
    return worker_.AwaitDevices(*training_.state);
  }));
  ReportPhase(step, kOptimizerPhase);
  // From here on the rank does not communicate, so the step is completed or, if an error ends this process, not visible
  // to other ranks.
  DDPRUN_RETURN_IF_ERROR(TorchTry("optimizer step", [&] { return Update(); }));
  return loss;
}

absl::Status ElasticTrainer::Update() {
  torch::optim::LRScheduler* const scheduler = training_.scheduler;
  const unsigned steps = scheduler == nullptr ? 0 : StepsOf(*scheduler);
  if (training_.update != nullptr) {
    DDPRUN_RETURN_IF_ERROR(training_.update());
  } else if (training_.scaler != nullptr) {
    training_.scaler->Step(*training_.optimizer);
    training_.scaler->Update();
  } else {
    training_.optimizer->step();
  }
  if (scheduler == nullptr) return absl::OkStatus();
  if (StepsOf(*scheduler) != steps) {
    return absl::InvalidArgumentError(
        "ElasticTraining::update has stepped the scheduler, which the trainer steps as well: remove one of them");
  }
  scheduler->step();
  return absl::OkStatus();
}

void ElasticTrainer::ReportPhase(int64_t step, const char* phase) {
  // The first forward is reported at the start of the step.
  if (std::strcmp(phase, phase_) == 0) return;
  phase_ = phase;
  ++phases_;
  if (schedule_.reports_phases()) ReportProgress({.step = step, .phase = phase, .loss = loss_});
}

absl::StatusOr<std::optional<int64_t>> ElasticTrainer::Resume() {
  checkpointer_ = nullptr;
  DDPRUN_RETURN_IF_ERROR(UseCheckpoints());
  if (checkpointer_ == nullptr) return std::nullopt;
  DDPRUN_ASSIGN_OR_RETURN(const CheckpointInfo from, checkpointer_->Resume());
  if (from.path.empty()) return std::nullopt;
  return from.progress.step;
}

absl::Status ElasticTrainer::UseCheckpoints() {
  if (options_.checkpoint.folder.empty()) return absl::OkStatus();
  if (checkpointer_ == nullptr) {
    DDPRUN_ASSIGN_OR_RETURN(checkpointer_,
                            Checkpointer::Create(worker_.group(), *training_.state, options_.checkpoint));
  }
  const uint64_t round = worker_.env().round;
  if (round != 0) checkpointer_->Rebind(worker_.group(), static_cast<int64_t>(round));
  return absl::OkStatus();
}

absl::Status ElasticTrainer::Save(int64_t steps, bool must) {
  if (checkpointer_ == nullptr || saved_ == steps) return absl::OkStatus();
  ReportProgress({.step = steps, .phase = kCheckpointPhase, .loss = loss_});
  const ElasticSampler* const sampler = training_.sampler;
  const absl::Status status =
      checkpointer_->Save({.step = steps,
                           .epoch = sampler == nullptr ? 0 : sampler->epoch(),
                           .sampler_position = sampler == nullptr ? 0 : sampler->position(),
                           .sampler_seed = sampler == nullptr ? 0 : static_cast<uint64_t>(sampler->options().seed)});
  // A background save is known to be on disk, or to have failed, when the next call returns; the save of that call is
  // then in progress.
  const std::optional<int64_t> before = std::exchange(unconfirmed_, std::nullopt);
  if (!status.ok()) {
    const bool async = options_.checkpoint.async;
    if ((must && !async) || !MayContinueAfterFailedSave(steps, status)) return status;
    if (async) unconfirmed_ = steps;
    return absl::OkStatus();
  }
  failed_saves_ = 0;
  if (before.has_value()) worker_.ReportCheckpoint(*before);
  if (options_.checkpoint.async) {
    unconfirmed_ = steps;
  } else {
    worker_.ReportCheckpoint(steps);
  }
  saved_ = steps;
  return absl::OkStatus();
}

// Returns true if training may continue without this checkpoint, with the same result on all ranks, as all have got the
// error. The error of a disk may be transient, and the state is in memory.
bool ElasticTrainer::MayContinueAfterFailedSave(int64_t steps, const absl::Status& failed) {
  switch (failed.code()) {
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnavailable: break;
    default: return false;
  }
  if (!worker_.group()->Health().ok() || ++failed_saves_ >= kFailedSaves) return false;
  if (worker_.env().rank == 0) {
    std::fputs(
        absl::StrCat("ddprun: WARNING: a checkpoint was not saved, and training continues without it after step ",
                     steps, " (failure ", failed_saves_, " in a row; ", kFailedSaves,
                     " end the training): ", failed.message(), "\n")
            .c_str(),
        stderr);
  }
  return true;
}

absl::Status ElasticTrainer::ReportFinished(int64_t steps) {
  if (checkpointer_ != nullptr) DDPRUN_RETURN_IF_ERROR(checkpointer_->Finish());
  if (unconfirmed_.has_value()) worker_.ReportCheckpoint(*std::exchange(unconfirmed_, std::nullopt));
  ReportProgress({.step = steps, .phase = kFinishedPhase, .loss = loss_});
  return absl::OkStatus();
}

absl::StatusOr<ElasticTrainer::Wishes> ElasticTrainer::Agree(int64_t step) {
  // Reported for the previous step: the work after it is this rank's own time, not that of the ranks it waits for.
  ReportPhase(std::max<int64_t>(0, step - 1), kSyncPhase);
  // A request is kept until all ranks know of it: the step in which they agree may fail.
  checkpoint_wanted_ |= worker_.TakeCheckpointRequest();
  const bool stop = TimeUntilStop() < absl::InfiniteDuration();
  at::Tensor values = at::tensor(
      {int64_t{stop}, int64_t{checkpoint_wanted_}, absl::ToInt64Nanoseconds(training_time_), phases_}, at::kLong);
  values = values.to(worker_.group()->device());
  DDPRUN_RETURN_IF_ERROR(worker_.group()->AllReduce(values, ReduceOp::kMax));
  values = values.cpu();
  const auto* const agreed = values.const_data_ptr<int64_t>();
  schedule_.Agreed(step, absl::Nanoseconds(agreed[2]), agreed[3]);
  training_time_ = absl::ZeroDuration();
  phases_ = 0;
  // Step 0 has nothing to save: the request is kept for the next step.
  const bool checkpoint = agreed[1] != 0 && step > 0;
  if (checkpoint) checkpoint_wanted_ = false;
  return Wishes{agreed[0] != 0, checkpoint};
}

}  // namespace ddprun
