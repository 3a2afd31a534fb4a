// Ranks with different speeds: the fast ones wait in the collectives. If the timeout is longer than the delay, training
// continues; if it is shorter, the job ends with an error that names the rank that did not enter the collective.
//
//   ddprun --standalone --nproc-per-node=3 --no-python skewed_ranks --slow-rank=2 --delay=1 --timeout=30
//   ddprun --standalone --nproc-per-node=3 --no-python skewed_ranks --slow-rank=2 --delay=30 --timeout=2
//
// In real training, choose a timeout that allows for a checkpoint, an evaluation or a slow file system on one rank:
// ending a job because a rank was late costs more than detecting a hung rank some minutes later.
#include <ATen/Functions.h>
#include <torch/optim/sgd.h>

#include <CLI/CLI.hpp>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "examples/cpp/example_main.h"
#include "examples/cpp/toy_model.h"
#include "worker_runtime/base/parameters.h"
#include "worker_runtime/ddp/distributed_data_parallel.h"

namespace {

struct Flags {
  int slow_rank = 1;
  double delay = 1;
  double timeout = 30;
  int steps = 2;
  int spawn = 0;
};

absl::Status Train(ddprun::Worker& worker, const Flags& flags) {
  DDPRUN_RETURN_IF_ERROR(worker.InitProcessGroup());
  examples::ToyModel model;
  DDPRUN_ASSIGN_OR_RETURN(auto ddp, ddprun::MakeDistributedDataParallel(model, worker.group()));
  torch::optim::SGD optimizer(ddprun::Parameters(model), torch::optim::SGDOptions(0.1));
  const bool slow = worker.env().rank == flags.slow_rank;
  for (int step = 1; step <= flags.steps; ++step) {
    if (slow) absl::SleepFor(absl::Seconds(flags.delay));  // simulates slow samples
    const absl::Time began = absl::Now();
    const at::Tensor loss = at::mse_loss(ddp->forward(at::randn({20, 10})), at::randn({20, 5}));
    ddp->zero_grad();
    loss.backward();  // the fast ranks wait for the slow one here
    optimizer.step();
    examples::Say(absl::StrCat("step ", step, ": rank ", worker.env().rank,
                               slow ? " was late, and had its step in " : " had its step, with waiting, in ",
                               absl::FormatDuration(absl::Trunc(absl::Now() - began, absl::Milliseconds(1)))));
  }
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Trains a toy model with one slow rank.");
  Flags flags;
  app.add_option("--slow-rank", flags.slow_rank, "the slow rank")->capture_default_str();
  app.add_option("--delay", flags.delay, "its delay per step, seconds")
      ->check(examples::AtLeast(0))
      ->capture_default_str();
  app.add_option("--timeout", flags.timeout, "timeout of collectives, seconds")
      ->check(examples::Positive())
      ->capture_default_str();
  app.add_option("--steps", flags.steps, "optimizer steps")->check(examples::AtLeast(1))->capture_default_str();
  app.add_option("--spawn", flags.spawn, "number of workers to start; 0: started by a launcher")
      ->check(examples::AtLeast(0));
  examples::ParseFlags(app, argc, argv);
  return examples::Run(flags.spawn, {.seed = 1, .timeout = absl::Seconds(flags.timeout)},
                       [&](ddprun::Worker& worker) { return Train(worker, flags); });
}
