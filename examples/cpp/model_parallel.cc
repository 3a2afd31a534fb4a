// DistributedDataParallel with a model that does not fit on one device: each rank splits it over two devices, and
// gradients are averaged over the ranks as usual.
//
//   ddprun --standalone --nproc-per-node=2 --no-python model_parallel                      both halves on the CPU
//   ddprun --standalone --nproc-per-node=2 --no-python model_parallel --backend=nccl       rank i on GPUs 2i and 2i+1
#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <torch/optim/sgd.h>

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
  const int first_index = 2 * worker.env().local_rank;
  const at::DeviceType type = worker.device().type();
  const bool gpu = type == at::kCUDA;
  if (gpu && static_cast<size_t>(first_index) + 1 >= at::getNumGPUs()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("model_parallel needs 2 GPUs per rank: this host has %d, so start at most %d workers on it",
                        at::getNumGPUs(), at::getNumGPUs() / 2));
  }
  const at::Device first = gpu ? at::Device(type, first_index) : at::Device(type);
  const at::Device second = gpu ? at::Device(type, first_index + 1) : at::Device(type);
  examples::ToyModel model(first, second);
  DDPRUN_ASSIGN_OR_RETURN(auto ddp, ddprun::MakeDistributedDataParallel(model, worker.group()));
  torch::optim::SGD optimizer(ddprun::Parameters(model), torch::optim::SGDOptions(0.1));
  for (int step = 1; step <= steps; ++step) {
    // The inputs go to the first device, the labels to the second, where the outputs are.
    const at::Tensor outputs = ddp->forward(at::randn({20, 10}));
    const at::Tensor loss = at::mse_loss(outputs, at::randn({20, 5}).to(second));
    ddp->zero_grad();
    loss.backward();
    optimizer.step();
    examples::Say(absl::StrFormat("step %d  rank %d's loss %.4f on %s and %s", step, worker.env().rank,
                                  ddprun::LossOfThisRank(loss), first.str(), second.str()));
  }
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Trains a toy model that each rank splits over two devices.");
  int steps = 2;
  app.add_option("--steps", steps, "optimizer steps")->check(examples::AtLeast(1))->capture_default_str();
  return examples::Main(app, argc, argv, [&](ddprun::Worker& worker) { return Train(worker, steps); }, {.seed = 1},
                        {.backend = "gloo"});
}
