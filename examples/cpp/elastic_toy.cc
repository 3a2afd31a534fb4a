// The smallest elastic trainer: two linear layers, one optimizer step. On each of two machines:
//
//   ddprun --nnodes=2 --nproc_per_node=2 --rdzv_id=100 --rdzv_endpoint=$MASTER_ADDR:29400 --no-python elastic_toy
//
// The program does not depend on the number of machines; ranks and addresses come from the launcher.
#include <ATen/Functions.h>
#include <torch/optim/sgd.h>

#include <CLI/CLI.hpp>

#include "absl/strings/str_format.h"
#include "examples/cpp/example_main.h"
#include "examples/cpp/toy_model.h"
#include "worker_runtime/base/parameters.h"
#include "worker_runtime/ddp/distributed_data_parallel.h"
#include "worker_runtime/training.h"

namespace {

absl::Status Train(ddprun::Worker& worker) {
  examples::Say(absl::StrFormat("rank %d of %d starts on %s, restarts so far %d", worker.env().rank,
                                worker.env().world_size, worker.device().str(), worker.env().restart_count));
  examples::ToyModel model;
  model->to(worker.device());
  ddprun::DistributedDataParallel ddp(model);
  torch::optim::SGD optimizer(ddprun::Parameters(model), torch::optim::SGDOptions(0.001));
  ddprun::Training training(worker, ddp, optimizer, {.steps = 1});
  return training.Run([&](ddprun::Step& step) {
    const at::Tensor outputs = ddp(at::randn({20, 10}).to(worker.device()));
    const at::Tensor loss = at::mse_loss(outputs, at::randn({20, 5}).to(worker.device()));
    step.Backward(loss);
    step.Commit();
    examples::Say(absl::StrFormat("rank %d made its step, its own loss was %.3f", worker.env().rank,
                                  ddprun::LossOfThisRank(loss)));
  });
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Makes one optimizer step on a toy model.");
  return examples::Main(app, argc, argv, Train);
}
