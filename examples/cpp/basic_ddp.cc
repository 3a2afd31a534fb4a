// DistributedDataParallel on a toy model: each rank trains on its own samples, and all end with the same parameters.
//
//   ddprun --standalone --nproc-per-node=2 --no-python basic_ddp     workers started by a launcher
//   basic_ddp --spawn=2                                                 workers started by the program itself
#include <ATen/Functions.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <CLI/CLI.hpp>

#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "examples/cpp/example_main.h"
#include "examples/cpp/toy_model.h"
#include "worker_runtime/base/parameters.h"
#include "worker_runtime/ddp/distributed_data_parallel.h"

namespace {

absl::Status Train(ddprun::Worker& worker, int steps) {
  DDPRUN_RETURN_IF_ERROR(worker.InitProcessGroup());
  // Every rank starts with different weights; DistributedDataParallel broadcasts rank 0's.
  torch::manual_seed(worker.env().rank);
  examples::ToyModel model;
  model->to(worker.device());
  DDPRUN_ASSIGN_OR_RETURN(auto ddp, ddprun::MakeDistributedDataParallel(model, worker.group()));

  torch::optim::SGD optimizer(ddprun::Parameters(model), torch::optim::SGDOptions(0.1));
  for (int step = 1; step <= steps; ++step) {
    const at::Tensor inputs = at::randn({20, 10}).to(worker.device()), labels = at::randn({20, 5}).to(worker.device());
    const at::Tensor loss = at::mse_loss(ddp->forward(inputs), labels);
    ddp->zero_grad();
    loss.backward();  // also averages the gradients over the ranks
    optimizer.step();

    DDPRUN_ASSIGN_OR_RETURN(const double average, ddprun::LossAveragedOverRanks(loss, *worker.group()));
    examples::Say(absl::StrFormat("step %d  rank %d's loss %.4f  averaged over ranks %.4f", step, worker.env().rank,
                                  ddprun::LossOfThisRank(loss), average));
  }
  double sum = 0;
  for (const at::Tensor& parameter : model->parameters()) sum += parameter.sum().item<double>();
  examples::Say(
      absl::StrFormat("rank %d of %d: the parameters' sum is %.6f", worker.env().rank, worker.env().world_size, sum));
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Trains a toy model with DistributedDataParallel.");
  int steps = 3;
  app.add_option("--steps", steps, "optimizer steps")->check(examples::AtLeast(1))->capture_default_str();
  return examples::Main(app, argc, argv, [&](ddprun::Worker& worker) { return Train(worker, steps); });
}
