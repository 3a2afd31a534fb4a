#include "worker_runtime/elastic/elastic_trainer.h"

#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/optim/optimizer.h>
#include <torch/optim/schedulers/lr_scheduler.h>

#include <cmath>
#include <utility>

#include "worker_runtime/base/status_macros.h"
#include "worker_runtime/base/torch_try.h"
#include "worker_runtime/elastic/core/step_seed.h"
#include "worker_runtime/report_progress.h"
#include "worker_runtime/stop_requested.h"

namespace ddprun {

ElasticTrainer::ElasticTrainer(ElasticWorker& worker, ElasticTraining training, ElasticTrainerOptions options)
    : worker_(worker), training_(std::move(training)), options_(std::move(options)) {}

absl::Status ElasticTrainer::Check() const {
  if (training_.model == nullptr || training_.state == nullptr || training_.step == nullptr) {
    return absl::InvalidArgumentError("ElasticTraining needs a model, a state and a step");
  }
  if (training_.optimizer == nullptr && training_.update == nullptr) {
    return absl::InvalidArgumentError("ElasticTraining needs an optimizer or an update");
  }
  if (options_.steps < 0 || options_.checkpoint_every < 1 || options_.agree_every < 1) {
    return absl::InvalidArgumentError(
        "ElasticTrainerOptions: steps must not be negative, checkpoint_every and agree_every must be at least 1");
  }
  return absl::OkStatus();
}

absl::Status ElasticTrainer::Train() {
  DDPRUN_RETURN_IF_ERROR(Check());
  for (;;) {
    const absl::Status begins = worker_.NextRendezvous(*training_.state, *training_.model);
    // Everything is saved, and the worker was only waiting for whether others leave or all.
    if (absl::IsCancelled(begins) && stopped_) return absl::OkStatus();
    DDPRUN_RETURN_IF_ERROR(begins);
    stopped_ = false;
    const absl::StatusOr<End> end = TrainRound();
    if (end.ok() && *end != End::kNextRound) return absl::OkStatus();
    if (!end.ok() && !worker_.Recoverable(end.status())) return end.status();
  }
}

absl::StatusOr<ElasticTrainer::End> ElasticTrainer::TrainRound() {
  DDPRUN_RETURN_IF_ERROR(worker_.InitProcessGroup());
  if (training_.sampler != nullptr) training_.sampler->SetWorld(worker_.env().rank, worker_.env().world_size);
  // What survivors saved of their step is not known to newcomers: it may be saved once more.
  saved_ = std::nullopt;
  bool resumed = false;
  DDPRUN_ASSIGN_OR_RETURN(int64_t step, worker_.SyncState(*training_.state, *training_.model, [&] {
    resumed = true;
    return Resume();
  }));
  if (resumed) {
    saved_ = step;
  } else {
    DDPRUN_RETURN_IF_ERROR(UseCheckpoints());
  }
  for (;;) {
    const bool last = step >= options_.steps;
    if (step > 0 && (last || step % options_.checkpoint_every == 0)) DDPRUN_RETURN_IF_ERROR(Save(step));
    if (last) break;
    if (step % options_.agree_every == 0) {
      DDPRUN_ASSIGN_OR_RETURN(const Wishes wishes, Agree());
      if (wishes.stop || wishes.checkpoint) DDPRUN_RETURN_IF_ERROR(Save(step));
      if (wishes.stop) {
        DDPRUN_RETURN_IF_ERROR(SayFinished());
        DDPRUN_RETURN_IF_ERROR(worker_.group()->Shutdown());
        stopped_ = true;
        return TimeUntilStop() < absl::InfiniteDuration() ? End::kStopped : End::kNextRound;
      }
    }
    DDPRUN_ASSIGN_OR_RETURN(const at::Tensor loss, Step(step));
    worker_.Commit(*training_.state, ++step);
    if (training_.committed != nullptr) {
      DDPRUN_RETURN_IF_ERROR(worker_.group()->Try("after a step", [&] { return training_.committed(step, loss); }));
    }
    if (worker_.suspended()) return End::kNextRound;
  }
  DDPRUN_RETURN_IF_ERROR(SayFinished());
  // Here, and not in RunWorker: a rank that dies now is replaced, and the newcomer gets the state to end with.
  DDPRUN_RETURN_IF_ERROR(worker_.group()->Shutdown());
  return End::kDone;
}

absl::StatusOr<at::Tensor> ElasticTrainer::Step(int64_t step) {
  ReportProgress({.step = step});
  at::Tensor loss;
  DDPRUN_RETURN_IF_ERROR(worker_.group()->Try("training step", [&]() -> absl::Status {
    at::manual_seed(StepSeed(options_.seed, step, worker_.env().rank));
    DDPRUN_ASSIGN_OR_RETURN(loss, training_.step(step));
    loss = loss.detach();
    training_.model->FinishBackward();
    return AwaitDevice();
  }));
  // From here on nothing communicates, so the step is made whole or, if an error ends this process, not seen by anyone.
  DDPRUN_RETURN_IF_ERROR(TorchTry("optimizer step", [&]() -> absl::Status {
    if (training_.update != nullptr) return training_.update();
    training_.optimizer->step();
    if (training_.scheduler != nullptr) training_.scheduler->step();
    return absl::OkStatus();
  }));
  return loss;
}

// NCCL's collectives may still be running, and fail. The optimizer must not see their gradients then.
absl::Status ElasticTrainer::AwaitDevice() {
  if (!worker_.device().is_cuda()) return absl::OkStatus();
  c10::impl::VirtualGuardImpl(worker_.device().type()).synchronizeDevice(worker_.device().index());
  return worker_.group()->Health();
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
  if (checkpointer_ != nullptr) {
    checkpointer_->Rebind(worker_.group(), static_cast<int64_t>(worker_.env().round));
    return absl::OkStatus();
  }
  DDPRUN_ASSIGN_OR_RETURN(checkpointer_, Checkpointer::Create(worker_.group(), *training_.state, options_.checkpoint));
  return absl::OkStatus();
}

absl::Status ElasticTrainer::Save(int64_t steps) {
  if (checkpointer_ == nullptr || saved_ == steps) return absl::OkStatus();
  ReportProgress({.step = steps, .phase = "checkpoint"});
  const ElasticSampler* const sampler = training_.sampler;
  DDPRUN_RETURN_IF_ERROR(
      checkpointer_->Save({.step = steps,
                           .epoch = sampler == nullptr ? 0 : sampler->epoch(),
                           .sampler_position = sampler == nullptr ? 0 : sampler->position(),
                           .sampler_seed = sampler == nullptr ? 0 : static_cast<uint64_t>(sampler->options().seed)}));
  // One that is written in the background is on disk when the next call says so.
  if (unconfirmed_.has_value()) worker_.SayCheckpointed(*std::exchange(unconfirmed_, std::nullopt));
  if (options_.checkpoint.async) {
    unconfirmed_ = steps;
  } else {
    worker_.SayCheckpointed(steps);
  }
  saved_ = steps;
  return absl::OkStatus();
}

absl::Status ElasticTrainer::SayFinished() {
  if (checkpointer_ == nullptr) return absl::OkStatus();
  DDPRUN_RETURN_IF_ERROR(checkpointer_->Finish());
  if (unconfirmed_.has_value()) worker_.SayCheckpointed(*std::exchange(unconfirmed_, std::nullopt));
  return absl::OkStatus();
}

absl::StatusOr<ElasticTrainer::Wishes> ElasticTrainer::Agree() {
  // A wish stays until all know of it: the step in which they agree may fail.
  checkpoint_wanted_ |= worker_.TakeCheckpointRequest();
  const bool stop = TimeUntilStop() < absl::InfiniteDuration();
  at::Tensor wishes = at::tensor({int64_t{stop}, int64_t{checkpoint_wanted_}}, at::kLong).to(worker_.group()->device());
  DDPRUN_RETURN_IF_ERROR(worker_.group()->AllReduce(wishes, ReduceOp::kMax));
  wishes = wishes.cpu();
  const Wishes agreed{wishes[0].item<int64_t>() != 0, wishes[1].item<int64_t>() != 0};
  if (agreed.checkpoint) checkpoint_wanted_ = false;
  return agreed;
}

}  // namespace ddprun
