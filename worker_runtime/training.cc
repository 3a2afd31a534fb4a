#include "worker_runtime/training.h"

#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/Exception.h>
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
#include "base/status_macros.h"
#include "base/steady_time.h"
#include "worker_contract/worker_link.h"
#include "worker_runtime/base/launcher_link.h"
#include "worker_runtime/base/non_restartable.h"
#include "worker_runtime/base/parameters.h"
#include "worker_runtime/base/torch_try.h"
#include "worker_runtime/elastic/core/shared_decisions.h"
#include "worker_runtime/extras/amp.h"
#include "worker_runtime/extras/nn.h"
#include "worker_runtime/extras/optim.h"
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

// Thrown by Step::Commit through the user's function. Not a std::exception, so that no handler of that function takes
// it for an error of its own.
struct CommitFailed {
  absl::Status status;  // OK: Training::own_failure_ has the error
};

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

void Step::CheckNotCommitted(const char* call) const {
  TORCH_CHECK_VALUE(!committed_, "Step::", call, " was called after Commit");
}

std::vector<size_t> Step::Next(BatchSampler& sampler) {
  CheckNotCommitted("Next");
  const std::vector<BatchSampler*>& added = training_.samplers_;
  TORCH_CHECK_VALUE(std::find(added.begin(), added.end(), &sampler) != added.end(),
                    "Step::Next: the sampler is unknown: call Training::Add(sampler) before Run");
  const Batch batch = sampler.Next();
  weight_ = batch.loss_weight;
  return batch.indices;
}

void Step::Backward(const at::Tensor& loss) {
  CheckNotCommitted("Backward");
  TORCH_CHECK_VALUE(!clipped_,
                    "Step::Backward was called after ClipGradNorm, which must follow the last Backward of the step");
  // As Python's documentation recommends, backward runs outside of the Autocast that may be alive here.
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  if (!std::exchange(has_gradients_, true)) training_.model_.zero_grad();
  training_.step_loss_ = loss.detach();
  at::Tensor of_step = weight_ == 1 ? loss : loss * weight_;
  if (training_.scaler_ != nullptr) of_step = training_.scaler_->Scale(of_step);
  of_step.backward();
}

at::Tensor Step::ClipGradNorm(double max_norm) {
  CheckNotCommitted("ClipGradNorm");
  TORCH_CHECK_VALUE(has_gradients_ && !std::exchange(clipped_, true),
                    "Step::ClipGradNorm must be called once in a step, after its last Step::Backward");
  if (training_.scaler_ != nullptr) training_.scaler_->Unscale(training_.optimizer_);
  return ddprun::ClipGradNorm(Parameters(training_.model_.base_module()), max_norm);
}

void Step::Commit(const std::function<void()>& also) {
  Training& training = training_;
  Worker& worker = training.worker_;
  TORCH_CHECK_VALUE(!committed_, "Step::Commit was called twice in one step");
  TORCH_CHECK_VALUE(has_gradients_, "the step has no gradients: call step.Backward(loss), instead of loss.backward()");
  training.model_.FinishBackward();
  // NCCL's collectives may still be running, and fail. The optimizer must not use their gradients then.
  if (absl::Status status = worker.AwaitDevices(training.state_); !status.ok()) throw CommitFailed{std::move(status)};
  training.ReportPhase(number_, kOptimizerPhase);
  // From here on the rank does not communicate, so the step is completed or, if an error ends this process, not visible
  // to other ranks.
  training.own_failure_ = TorchTry("optimizer step", [&] {
    training.Update(also);
    return worker.Commit(training.state_, number_ + 1, {.gradients = false});
  });
  if (!training.own_failure_.ok()) throw CommitFailed{absl::OkStatus()};
  committed_ = true;
  const at::Tensor& loss = training.step_loss_;
  training.loss_ = loss.defined() && loss.numel() == 1 ? std::optional(loss.item<double>()) : std::nullopt;
  training.training_time_ += SteadyNow() - training.step_began_;
}

Training::Training(Worker& worker, DistributedModel& model, torch::optim::Optimizer& optimizer, TrainingOptions options)
    : worker_(worker),
      model_(model),
      optimizer_(optimizer),
      options_(std::move(options)),
      state_(model.base_module(), &optimizer),
      schedule_(options_.agree_every) {}

void Training::AddOne(torch::optim::LRScheduler& scheduler) {
  if (scheduler_ != nullptr) return added_.Update(absl::InvalidArgumentError("Training::Add: a second scheduler"));
  scheduler_ = &scheduler;
  added_.Update(state_.AddScheduler(scheduler));
}

void Training::AddOne(GradScaler& scaler) {
  if (scaler_ != nullptr) return added_.Update(absl::InvalidArgumentError("Training::Add: a second gradient scaler"));
  scaler_ = &scaler;
  added_.Update(state_.AddScaler(scaler));
}

void Training::AddOne(BatchSampler& sampler) {
  added_.Update(
      state_.AddSampler(sampler, samplers_.empty() ? "sampler" : absl::StrCat("sampler", samplers_.size() + 1)));
  samplers_.push_back(&sampler);
}

void Training::AddOne(Metrics& metrics) { metrics_.push_back(&metrics); }

void Training::EvaluateEvery(int64_t steps, std::function<absl::Status(int64_t)> evaluate) {
  if (steps < 1) {
    added_.Update(
        absl::InvalidArgumentError(absl::StrCat("Training::EvaluateEvery: steps=", steps, ": must be at least 1")));
  }
  evaluate_every_ = std::max<int64_t>(steps, 1);
  evaluate_ = std::move(evaluate);
}

absl::Status Training::Check() const {
  if (options_.steps < 1 || options_.checkpoint_every < 1 || options_.agree_every < absl::ZeroDuration()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "TrainingOptions: steps=", options_.steps, " and checkpoint_every=", options_.checkpoint_every,
        " must be at least 1, agree_every=", absl::FormatDuration(options_.agree_every), " must not be negative"));
  }
  if (worker_.committed_step().has_value()) {
    return absl::FailedPreconditionError(
        "a Training has run in this process before: a process can run one Training, once");
  }
  for (const torch::optim::LRScheduler* const scheduler : LambdaLR::Of(optimizer_)) {
    if (scheduler == scheduler_) continue;
    return absl::InvalidArgumentError(
        "Training: the optimizer has a LambdaLR that was not added: no step would step it, and after a warm-up's first "
        "rate of 0 nothing would be learned; call Training::Add(scheduler) before Run");
  }
  return added_;
}

absl::Status Training::RunSteps(StepFunction step) {
  DDPRUN_RETURN_IF_ERROR(NonRestartable(Check()));
  model_.set_on_pass([this](bool backward) { ReportPhase(step_, backward ? kBackwardPhase : kForwardPhase); });
  const auto forget = absl::MakeCleanup([this] { model_.set_on_pass(nullptr); });
  for (bool first = true;; first = false) {
    const absl::Status begins = worker_.NextRendezvous(state_, model_);
    // From here on SIGTERM does not end this process, which saves first. Not without a link: only the signal could then
    // end the wait for a group that can no longer be formed.
    if (first && LauncherLink::OfProcess().connected()) TimeUntilStop();
    // Everything is saved; the worker was only waiting to learn whether some nodes leave or all.
    if (absl::IsCancelled(begins) && stopped_) return absl::OkStatus();
    DDPRUN_RETURN_IF_ERROR(begins);
    stopped_ = false;
    const absl::StatusOr<End> end = TrainRound(step);
    if (end.ok() && *end != End::kNextRound) return absl::OkStatus();
    if (!end.ok() && !worker_.Recoverable(end.status())) return end.status();
  }
}

absl::StatusOr<Training::End> Training::TrainRound(StepFunction step_function) {
  DDPRUN_ASSIGN_OR_RETURN(int64_t step, BeginRound());
  for (;;) {
    DDPRUN_ASSIGN_OR_RETURN(const std::optional<End> end, BetweenSteps(step));
    if (end.has_value()) return *end;
    if (step >= options_.steps) break;
    DDPRUN_RETURN_IF_ERROR(TrainStep(step_function, step++));
    // Checked after a step, because state that a newcomer lacks, for example an unregistered schedule, takes effect
    // there.
    if (std::exchange(recovered_, false)) {
      DDPRUN_RETURN_IF_ERROR(worker_.group()->Try("first step of the round",
                                                  [&] { return state_.CheckSameOnAllRanks(*worker_.group()); }));
    }
    if (worker_.suspended()) return End::kNextRound;
  }
  DDPRUN_RETURN_IF_ERROR(ReportFinished(step));
  // Here, and not in RunWorker: a rank that dies now is replaced, and the newcomer receives the final state.
  DDPRUN_RETURN_IF_ERROR(worker_.group()->Shutdown());
  return End::kDone;
}

absl::StatusOr<int64_t> Training::BeginRound() {
  DDPRUN_RETURN_IF_ERROR(worker_.InitProcessGroup());
  for (BatchSampler* sampler : samplers_) sampler->SetWorld(worker_.env().rank, worker_.env().world_size);
  // Newcomers do not have this knowledge of the survivors: the step may be saved once more, and the duration of steps
  // is measured again.
  saved_ = std::nullopt;
  unconfirmed_ = std::nullopt;
  failed_saves_ = 0;
  bool resumed = false;
  DDPRUN_ASSIGN_OR_RETURN(const int64_t step, worker_.SyncState(state_, model_, [&] {
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

absl::StatusOr<std::optional<Training::End>> Training::BetweenSteps(int64_t step) {
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
    if (worker_.env().rank == 0) {
      std::fprintf(stderr, "ddprun: training was stopped after step %d of %d%s\n", static_cast<int>(step),
                   static_cast<int>(options_.steps), checkpointer_ == nullptr ? ", without a checkpoint" : "");
    }
    DDPRUN_RETURN_IF_ERROR(worker_.group()->Shutdown());
    stopped_ = true;
    return TimeUntilStop() < absl::InfiniteDuration() ? End::kStopped : End::kNextRound;
  }
  if (!evaluate) return std::nullopt;
  DDPRUN_RETURN_IF_ERROR(Evaluate(step));
  if (worker_.suspended() && !last) return End::kNextRound;
  return std::nullopt;
}

bool Training::EvaluationDue(int64_t step) const {
  if (evaluate_ == nullptr || step == 0 || worker_.committed_part() >= kEvaluated) return false;
  return step >= options_.steps || step % evaluate_every_ == 0;
}

absl::Status Training::Evaluate(int64_t step) {
  ReportProgress({.step = step, .phase = kEvaluationPhase, .loss = loss_});
  DDPRUN_RETURN_IF_ERROR(worker_.group()->Try("evaluation", [&]() -> absl::Status {
    const EvaluationMode mode(model_.base_module());
    const at::NoGradGuard no_grad;
    // Uses a different seed than the following step.
    at::manual_seed(StepSeed(~seed(), step, worker_.env().rank));
    DDPRUN_RETURN_IF_ERROR(evaluate_(step));
    DDPRUN_RETURN_IF_ERROR(worker_.AwaitDevices(state_));
    // The evaluation counts as done only when it has returned on all ranks.
    return worker_.group()->Barrier();
  }));
  return worker_.Commit(state_, step, {.part = kEvaluated, .gradients = false});
}

absl::Status Training::TrainStep(StepFunction function, int64_t number) {
  step_began_ = SteadyNow();
  if (!schedule_.reports_phases() && schedule_.ReportsStep(number)) ReportProgress({.step = number, .loss = loss_});
  step_ = number;
  ReportPhase(number, kForwardPhase);
  step_loss_ = at::Tensor();
  own_failure_ = absl::OkStatus();
  if (scheduler_ != nullptr) scheduler_steps_ = StepsOf(*scheduler_);
  std::vector<Metrics> before;
  for (const Metrics* metrics : metrics_) before.push_back(*metrics);
  Step step(*this, number);
  absl::Status status = worker_.group()->Try("training step", [&]() -> absl::Status {
    at::manual_seed(StepSeed(seed(), number, worker_.env().rank));
    try {
      DDPRUN_RETURN_IF_ERROR(function(step));
      if (!step.committed_) step.Commit();
      return absl::OkStatus();
    } catch (const CommitFailed& failed) {
      return failed.status;
    }
  });
  if (!own_failure_.ok()) status = own_failure_;
  if (!step.committed_) {
    for (size_t i = 0; i < before.size(); ++i) *metrics_[i] = std::move(before[i]);
  }
  return status;
}

void Training::Update(const std::function<void()>& also) {
  if (scaler_ != nullptr) {
    scaler_->Step(optimizer_);
  } else {
    optimizer_.step();
  }
  if (also != nullptr) also();
  if (scaler_ != nullptr) scaler_->Update();
  if (scheduler_ == nullptr) return;
  TORCH_CHECK_VALUE(StepsOf(*scheduler_) == scheduler_steps_,
                    "the step has stepped the scheduler, which Training steps as well: remove that call");
  scheduler_->step();
}

void Training::ReportPhase(int64_t step, const char* phase) {
  // The first forward is reported at the start of the step.
  if (std::strcmp(phase, phase_) == 0) return;
  phase_ = phase;
  ++phases_;
  if (schedule_.reports_phases()) ReportProgress({.step = step, .phase = phase, .loss = loss_});
}

absl::StatusOr<std::optional<int64_t>> Training::Resume() {
  checkpointer_ = nullptr;
  DDPRUN_RETURN_IF_ERROR(UseCheckpoints());
  if (checkpointer_ == nullptr) return std::nullopt;
  DDPRUN_ASSIGN_OR_RETURN(const CheckpointInfo from, checkpointer_->Resume());
  if (from.path.empty()) return std::nullopt;
  return from.progress.step;
}

absl::Status Training::UseCheckpoints() {
  if (options_.checkpoint.folder.empty()) return absl::OkStatus();
  if (checkpointer_ == nullptr) {
    DDPRUN_ASSIGN_OR_RETURN(checkpointer_, Checkpointer::Create(worker_.group(), state_, options_.checkpoint));
  }
  const uint64_t round = worker_.env().round;
  if (round != 0) checkpointer_->Rebind(worker_.group(), static_cast<int64_t>(round));
  return absl::OkStatus();
}

absl::Status Training::Save(int64_t steps, bool must) {
  if (checkpointer_ == nullptr || saved_ == steps) return absl::OkStatus();
  ReportProgress({.step = steps, .phase = kCheckpointPhase, .loss = loss_});
  const BatchSampler* const sampler = samplers_.empty() ? nullptr : samplers_.front();
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
    if ((must && !async) || !MayContinueAfterFailedSave(steps, status)) return EndAfterFailedSave(status);
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
bool Training::MayContinueAfterFailedSave(int64_t steps, const absl::Status& failed) {
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

// Returns the error of a training that a failed save ends. The steps in memory are lost then: if no rank has a
// checkpoint, the launcher must not start the workers again, at step 0, as if nothing had happened.
absl::Status Training::EndAfterFailedSave(const absl::Status& failed) {
  // A rank was lost meanwhile: the others keep the state, and save again in the next round.
  DDPRUN_RETURN_IF_ERROR(worker_.group()->Health());
  DDPRUN_ASSIGN_OR_RETURN(const bool saved, checkpointer_->HasCheckpoint());
  if (saved) return failed;
  return NonRestartable(absl::Status(
      failed.code(),
      absl::StrCat(failed.message(), "; no rank has a checkpoint of this training in ", options_.checkpoint.folder,
                   ", so the job is not restarted: it would begin at step 0")));
}

absl::Status Training::ReportFinished(int64_t steps) {
  if (checkpointer_ != nullptr) {
    if (absl::Status status = checkpointer_->Finish(); !status.ok()) return EndAfterFailedSave(status);
  }
  if (unconfirmed_.has_value()) worker_.ReportCheckpoint(*std::exchange(unconfirmed_, std::nullopt));
  ReportProgress({.step = steps, .phase = kFinishedPhase, .loss = loss_});
  return absl::OkStatus();
}

absl::StatusOr<Training::Wishes> Training::Agree(int64_t step) {
  // Reported for the previous step: the work after it is this rank's own time, not that of the ranks it waits for.
  ReportPhase(std::max<int64_t>(0, step - 1), kSyncPhase);
  // A request is kept until all ranks know of it: the step in which they agree may fail.
  checkpoint_wanted_ |= worker_.TakeCheckpointRequest();
  const bool stop = TimeUntilStop() < absl::InfiniteDuration();
  int64_t position = 0;
  for (const BatchSampler* sampler : samplers_) position += sampler->epoch() * sampler->length() + sampler->position();
  at::Tensor values = at::tensor({int64_t{stop}, int64_t{checkpoint_wanted_}, absl::ToInt64Nanoseconds(training_time_),
                                  phases_, position, -position},
                                 at::kLong);
  values = values.to(worker_.group()->device());
  DDPRUN_RETURN_IF_ERROR(worker_.group()->AllReduce(values, ReduceOp::kMax));
  values = values.cpu();
  const auto* const agreed = values.const_data_ptr<int64_t>();
  if (agreed[4] != -agreed[5]) {
    return NonRestartable(absl::InvalidArgumentError(
        absl::StrCat("rank ", worker_.env().rank, ": the ranks have drawn different numbers of samples before step ",
                     step, ": all ranks must call Step::Next equally often")));
  }
  schedule_.Agreed(step, absl::Nanoseconds(agreed[2]), agreed[3]);
  training_time_ = absl::ZeroDuration();
  phases_ = 0;
  // Step 0 has nothing to save: the request is kept for the next step.
  const bool checkpoint = agreed[1] != 0 && step > 0;
  if (checkpoint) checkpoint_wanted_ = false;
  return Wishes{agreed[0] != 0, checkpoint};
}

}  // namespace ddprun
