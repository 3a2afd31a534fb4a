#include <ATen/Functions.h>
#include <torch/optim/adamw.h>
#include <torch/utils.h>

#include <cstdio>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "tests/simgpu/features/features.h"
#include "tests/simgpu/features/net.h"
#include "worker_runtime/base/parameters.h"
#include "worker_runtime/checkpoint/checkpointer.h"
#include "worker_runtime/ddp/distributed_data_parallel.h"
#include "worker_runtime/extras/amp.h"
#include "worker_runtime/extras/optim.h"
#include "worker_runtime/state/training_state.h"

namespace ddprun::testing {
namespace {

constexpr int kSteps = 6;

// A model with all that a checkpoint may hold.
struct Job {
  Net net{NetOptions{.batch_norm = true}};
  std::shared_ptr<DistributedDataParallel<NetImpl>> ddp;
  std::unique_ptr<AdamW> optimizer;
  GradScaler scaler;
  at::Tensor average;
  double best = 0;
  std::unique_ptr<TrainingState> state;

  absl::Status Make(Worker& worker) {
    net->to(worker.device());
    optimizer = std::make_unique<AdamW>(Parameters(net), torch::optim::AdamWOptions(1e-2));
    state = std::make_unique<TrainingState>(*net, optimizer.get());
    average = at::zeros({300000}, at::TensorOptions().device(worker.device()));
    DDPRUN_RETURN_IF_ERROR(state->AddTensor("average", average));
    DDPRUN_RETURN_IF_ERROR(state->AddScaler(scaler));
    DDPRUN_RETURN_IF_ERROR(state->AddValue("best", &best));
    DDPRUN_ASSIGN_OR_RETURN(ddp, MakeDistributedDataParallel(net, worker.group()));
    return absl::OkStatus();
  }

  void Step(Worker& worker, int step) {
    ddp->zero_grad();
    at::mse_loss(ddp->forward(Data(worker, step, 6, 8)), Data(worker, step + 500, 6, 4)).backward();
    optimizer->step();
    average.add_(step + 1);
    best += 1;
    ddp->FinishBackward();  // buffers are rank 0's
  }

  double Numbers() const { return Sum(*net) + average[5].item<double>(); }

  void Overwrite() {
    for (at::Tensor& parameter : net->parameters()) parameter.data().fill_(-1);
    average.fill_(-1);
  }
};

// The state is overwritten as soon as Save has returned; another job resumes from the checkpoint.
absl::Status SaveAndResume(Worker& worker, const std::string& name, CheckpointerOptions options) {
  torch::manual_seed(3);
  Job job, resumed;
  DDPRUN_RETURN_IF_ERROR(job.Make(worker));
  DDPRUN_ASSIGN_OR_RETURN(auto checkpointer, Checkpointer::Create(worker.group(), *job.state, options));
  DDPRUN_RETURN_IF_ERROR(checkpointer->Resume().status());
  double saved = 0;
  for (int step = 0; step < kSteps; ++step) {
    job.Step(worker, step);
    saved = job.Numbers();
    DDPRUN_RETURN_IF_ERROR(checkpointer->Save({.step = step + 1}));
  }
  job.Overwrite();
  DDPRUN_RETURN_IF_ERROR(checkpointer->Finish());
  DDPRUN_RETURN_IF_ERROR(resumed.Make(worker));
  DDPRUN_ASSIGN_OR_RETURN(auto loader, Checkpointer::Create(worker.group(), *resumed.state, options));
  DDPRUN_ASSIGN_OR_RETURN(const CheckpointInfo info, loader->Resume());
  if (info.progress.step != kSteps || resumed.Numbers() != saved || resumed.best != kSteps) {
    return absl::InternalError(absl::StrFormat("resumed step %d with %.9g and best %g; saved %.9g", info.progress.step,
                                               resumed.Numbers(), resumed.best, saved));
  }
  resumed.Step(worker, kSteps);
  printf("%s rank %d: saved %.6f, then %.6f\n", name.c_str(), worker.env().rank, saved, resumed.Numbers());
  return absl::OkStatus();
}

}  // namespace

absl::Status UseCheckpoints(Worker& worker, const std::string& folder) {
  for (const bool async : {false, true}) {
    for (const bool shared : {false, true}) {
      const std::string name = absl::StrCat(async ? "async" : "sync", shared ? " shared" : "", " checkpoint");
      const CheckpointerOptions options{
          .folder = absl::StrCat(folder, "/", name), .async = async, .shared_folder = shared};
      DDPRUN_RETURN_IF_ERROR(worker.group()->Try(name, [&] { return SaveAndResume(worker, name, options); }));
    }
  }
  return absl::OkStatus();
}

absl::Status UseTrainingState(Worker& worker) {
  torch::manual_seed(worker.env().rank);
  Net net(NetOptions{.batch_norm = true});
  net->to(worker.device());
  AdamW optimizer(Parameters(net), torch::optim::AdamWOptions(1e-2));
  TrainingState state(*net, &optimizer);
  at::Tensor extra = at::full({3}, worker.env().rank, at::TensorOptions().device(worker.device()));
  DDPRUN_RETURN_IF_ERROR(state.AddTensor("extra", extra));
  const auto step = [&](int i) {
    optimizer.zero_grad();
    at::mse_loss(net->forward(Data(worker, i, 6, 8)), Data(worker, i + 500, 6, 4)).backward();
    optimizer.step();
    extra.add_(1);
  };
  const auto numbers = [&] { return Sum(*net) + extra.sum().item<double>(); };
  step(0);
  DDPRUN_RETURN_IF_ERROR(
      worker.group()->Try("broadcast", [&] { return state.Broadcast(*worker.group(), worker.env().world_size - 1); }));
  const double committed = numbers();
  state.Commit(TrainingState::Scope::kEverything);
  step(1);
  step(2);
  if (numbers() == committed) return absl::InternalError("two steps changed nothing");
  DDPRUN_RETURN_IF_ERROR(state.Rollback());
  if (numbers() != committed) return absl::InternalError("Rollback of two steps");
  state.Commit();
  net->forward(Data(worker, 9, 6, 8)).mean().backward();  // changes running statistics
  extra.add_(1);
  DDPRUN_RETURN_IF_ERROR(state.Rollback());
  if (numbers() != committed) return absl::InternalError("Rollback of buffers");
  printf("TrainingState rank %d: %.6f\n", worker.env().rank, committed);
  return absl::OkStatus();
}

}  // namespace ddprun::testing
