// The pieces of code in docs/worker_runtime.md and docs/checkpoints.md, which are compiled but never called.
#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "base/status_macros.h"
#include "worker_runtime/base/parameters.h"
#include "worker_runtime/checkpoint/checkpointer.h"
#include "worker_runtime/data/batch_sampler.h"
#include "worker_runtime/data/distributed_sampler.h"
#include "worker_runtime/ddp/distributed_data_parallel.h"
#include "worker_runtime/extras/amp.h"
#include "worker_runtime/extras/metrics.h"
#include "worker_runtime/extras/nn.h"
#include "worker_runtime/extras/optim.h"
#include "worker_runtime/extras/summary_writer.h"
#include "worker_runtime/report_progress.h"
#include "worker_runtime/spawn/spawn.h"
#include "worker_runtime/state/training_state.h"
#include "worker_runtime/training.h"
#include "worker_runtime/worker.h"

absl::Status Train(ddprun::Worker& worker);
void Evaluate();
at::Tensor TrainStep();

int MainThatSpawns() {
  const absl::Status status = ddprun::Spawn(4, {.worker = {.device = "auto", .seed = 1}}, Train);
  if (!status.ok()) std::cerr << status.message() << "\n";
  return status.ok() ? 0 : 1;
}

absl::Status WatchedTraining(ddprun::Worker& worker, int64_t step, int64_t steps) {
  ddprun::Metrics metrics;
  DDPRUN_ASSIGN_OR_RETURN(auto writer, ddprun::SummaryWriter::Create([&worker] { return worker.env().rank; },
                                                                     {.folder = "runs/7", .purge_step = step + 1}));
  while (step < steps) {
    metrics.Add("loss", TrainStep());  // kept on its device, so this waits for nothing
    ++step;
    if (step % 100 == 0) {
      DDPRUN_ASSIGN_OR_RETURN(const auto values, metrics.Reduce(*worker.group()));
      DDPRUN_RETURN_IF_ERROR(writer->AddScalars(values, step));
    }
    ddprun::ReportProgress({.step = step});
  }
  return absl::OkStatus();
}

absl::Status GoOnInsideAnEpoch(ddprun::Worker& worker, ddprun::Checkpointer& checkpoints,
                               ddprun::DistributedSampler& sampler) {
  DDPRUN_ASSIGN_OR_RETURN(const ddprun::CheckpointInfo saved, checkpoints.Resume());
  ddprun::Progress progress = saved.progress;
  sampler.set_epoch(progress.epoch, progress.sampler_position / worker.group()->size());
  // ... after some batches:
  progress.sampler_position = sampler.position() * worker.group()->size();
  return checkpoints.Save(progress);
}

absl::Status ResumeEverything(ddprun::Worker& worker, const std::shared_ptr<torch::nn::Module>& net,
                              ddprun::AdamW& optimizer, torch::optim::LRScheduler& scheduler,
                              const ddprun::DistributedSampler& sampler, const at::Tensor& ema, double best_loss) {
  ddprun::TrainingState state(*net, &optimizer);
  DDPRUN_RETURN_IF_ERROR(state.AddScheduler(scheduler));
  DDPRUN_RETURN_IF_ERROR(state.AddSampler(sampler));
  DDPRUN_RETURN_IF_ERROR(state.AddTensor("ema", ema));
  DDPRUN_RETURN_IF_ERROR(state.AddValue("best_loss", &best_loss));
  auto checkpointer = ddprun::Checkpointer::Create(worker.group(), state, {.folder = "checkpoints"});
  return checkpointer.ok() ? (*checkpointer)->Resume().status() : checkpointer.status();
}

absl::Status KeepGoing(ddprun::Worker& worker) {
  const absl::Status status = worker.group()->Try("evaluation", [&]() -> absl::Status {
    Evaluate();  // LibTorch code, which may throw
    return absl::OkStatus();
  });
  if (!status.ok()) std::cerr << status.message() << "\n";
  return status;
}

at::Tensor Loss(const at::Tensor& outputs, const at::Tensor& targets);

struct Samples {
  at::Tensor inputs, targets;
};
Samples Load(const std::vector<size_t>& indices, const c10::Device& device);
constexpr int64_t kDatasetSize = 1000;

absl::Status OwnLoop(ddprun::Worker& worker, ddprun::TrainingState& state, ddprun::DistributedModel& ddp,
                     ddprun::AdamW& optimizer, ddprun::Worker::Resume resume, int64_t steps) {
  int64_t step = 0;
  const auto train_round = [&]() -> absl::Status {
    DDPRUN_RETURN_IF_ERROR(worker.InitProcessGroup());
    DDPRUN_ASSIGN_OR_RETURN(step, worker.SyncState(state, ddp, resume));
    while (step < steps && !worker.suspended()) {
      DDPRUN_RETURN_IF_ERROR(worker.group()->Try("step", [&] {
        TrainStep();  // forward and backward
        ddp.FinishBackward();
        return absl::OkStatus();
      }));
      optimizer.step();
      DDPRUN_RETURN_IF_ERROR(worker.Commit(state, ++step));
    }
    return step < steps ? absl::OkStatus() : worker.group()->Shutdown();
  };
  for (;;) {
    DDPRUN_RETURN_IF_ERROR(worker.NextRendezvous(state, ddp));
    const absl::Status status = train_round();
    if (status.ok() && step == steps) return status;
    if (!status.ok() && !worker.Recoverable(status)) return status;
  }
}

absl::Status EvaluateOn(const Samples& samples, int64_t steps);
void UpdateAverage(at::Tensor& average);
absl::Status Report(const std::map<std::string, double>& values);

absl::Status FullTraining(ddprun::Worker& worker, ddprun::DistributedDataParallel<torch::nn::LinearImpl>& ddp,
                          ddprun::AdamW& optimizer, ddprun::BatchSampler& sampler, at::Tensor average,
                          const Samples& held_out) {
  ddprun::LambdaLR schedule(optimizer, ddprun::CosineWithWarmup(/*warmup_steps=*/100, /*total_steps=*/10000));
  ddprun::GradScaler scaler;
  ddprun::Metrics metrics;
  ddprun::Training training(worker, ddp, optimizer, {.steps = 10000, .checkpoint = {.folder = "checkpoints"}});
  training.Add(sampler, schedule, scaler, metrics);
  DDPRUN_RETURN_IF_ERROR(training.state().AddTensor("average", average));
  training.EvaluateEvery(1000, [&](int64_t steps) { return EvaluateOn(held_out, steps); });
  return training.Run([&](ddprun::Step& step) -> absl::Status {
    const Samples batch = Load(step.Next(sampler), worker.device());
    const at::Tensor loss = Loss(ddp(batch.inputs), batch.targets);
    step.Backward(loss);
    step.ClipGradNorm(1.0);
    metrics.Add("loss", loss);
    step.Commit([&] { UpdateAverage(average); });
    if (step.number() % 100 != 99) return absl::OkStatus();
    DDPRUN_ASSIGN_OR_RETURN(const auto values, metrics.Reduce(*worker.group()));
    return Report(values);
  });
}

absl::Status OneGroup(ddprun::Worker& worker, torch::nn::Linear& net, ddprun::AdamW& optimizer,
                      const at::Tensor& inputs, const at::Tensor& targets) {
  DDPRUN_RETURN_IF_ERROR(worker.InitProcessGroup());
  DDPRUN_ASSIGN_OR_RETURN(auto ddp, ddprun::MakeDistributedDataParallel(net, worker.group()));
  at::Tensor loss = Loss(ddp->forward(inputs), targets);
  ddp->zero_grad();
  loss.backward();  // averages the gradients
  optimizer.step();
  return absl::OkStatus();
}

template <class Ddp>
void MixedPrecisionStep(Ddp& ddp, const at::Tensor& inputs, const at::Tensor& targets, ddprun::AdamW& optimizer,
                        const std::vector<at::Tensor>& parameters, ddprun::GradScaler& scaler) {
  at::Tensor loss;
  {
    ddprun::Autocast autocast(c10::DeviceType::CUDA, at::kHalf);
    loss = Loss(ddp.forward(inputs), targets);
  }
  scaler.Scale(loss).backward();
  scaler.Unscale(optimizer);  // only to clip or look at gradients
  ddprun::ClipGradNorm(parameters, 1.0);
  scaler.Step(optimizer);  // skipped if a gradient is infinite or NaN
  scaler.Update();
}
template void MixedPrecisionStep(torch::nn::LinearImpl&, const at::Tensor&, const at::Tensor&, ddprun::AdamW&,
                                 const std::vector<at::Tensor>&, ddprun::GradScaler&);
