// Time of a step of Training beside a plain loop, in blocks that alternate within the same processes and group:
//   ddprun --standalone --nproc-per-node=2 --no-python loop [--model=gpt] [--steps=100] [--rounds=11]
// Rank 0 prints the median step of each block, in ms, and the median of their ratios.
#include <torch/utils.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "benchmarks/ddp/batches.h"
#include "benchmarks/ddp/benchmark_net.h"
#include "benchmarks/ddp/clocks.h"
#include "worker_runtime/base/status_macros.h"
#include "worker_runtime/ddp/distributed_data_parallel.h"
#include "worker_runtime/extras/optim/adamw.h"
#include "worker_runtime/training.h"
#include "worker_runtime/worker.h"

namespace ddprun::benchmarks {
namespace {

struct Flags {
  std::string model = "gpt";
  int64_t steps = 100;
  int64_t rounds = 11;
};

double Median(std::vector<double> numbers) {
  std::sort(numbers.begin(), numbers.end());
  return numbers[numbers.size() / 2];
}

// A model with its own optimizer and batches.
struct Job {
  explicit Job(const std::string& model)
      : batches(TakesTokens(model) ? Batches::OfTokens(8, config.block_size, config.vocab_size)
                                   : Batches::OfFeatures(8, config.vocab_size)) {
    torch::manual_seed(1);
    net = MakeNet(model, config);
    optimizer = std::make_unique<AdamW>(net->parameters(), torch::optim::AdamWOptions(1e-3), AdamWKernel::kFused);
  }

  gpt::Config config = {.vocab_size = 64, .block_size = 64, .n_layer = 2, .n_head = 4, .n_embd = 64};
  Batches batches;
  std::shared_ptr<Net> net;
  std::unique_ptr<AdamW> optimizer;
};

// A plain loop, which reads its loss in each step as Training does. Returns the median step.
absl::StatusOr<double> PlainSteps(Job& job, Worker& worker, int64_t steps) {
  DDPRUN_ASSIGN_OR_RETURN(auto ddp, MakeDistributedDataParallel(job.net, worker.group()));
  std::vector<double> seconds;
  for (int64_t i = 0; i < steps; ++i) {
    const double began = Now();
    const auto [x, y] = job.batches.Get(i, worker.env().rank, worker.env().world_size);
    const at::Tensor loss = job.net->Loss(ddp->forward(x), y);
    ddp->zero_grad();
    loss.backward();
    job.optimizer->step();
    loss.item<double>();
    seconds.push_back(Now() - began);
  }
  return Median(seconds);
}

absl::Status Compare(const Flags& flags, Worker& worker) {
  Job job(flags.model), plain(flags.model);
  DistributedDataParallel ddp(job.net);
  Training training(worker, ddp, *job.optimizer, {.steps = flags.steps * flags.rounds});
  std::vector<double> seconds, ratios;
  double last = Now();
  return training.Run([&](Step& step) -> absl::Status {
    const auto [x, y] = job.batches.Get(step.number(), worker.env().rank, worker.env().world_size);
    step.Backward(job.net->Loss(ddp(x), y));
    step.Commit();
    // From the end of one step to that of the next, so that all work between them counts.
    const double now = Now();
    seconds.push_back(now - std::exchange(last, now));
    if ((step.number() + 1) % flags.steps != 0) return absl::OkStatus();
    const double ours = Median(std::exchange(seconds, {}));
    DDPRUN_ASSIGN_OR_RETURN(const double theirs, PlainSteps(plain, worker, flags.steps));
    ratios.push_back(ours / theirs);
    last = Now();
    if (worker.env().rank != 0) return absl::OkStatus();
    absl::PrintF("Training %.3f ms, plain loop %.3f ms, ratio %.3f\n", 1e3 * ours, 1e3 * theirs, ratios.back());
    if (static_cast<int64_t>(ratios.size()) == flags.rounds) absl::PrintF("median ratio %.3f\n", Median(ratios));
    return absl::OkStatus();
  });
}

}  // namespace
}  // namespace ddprun::benchmarks

int main(int argc, char** argv) {
  CLI::App app("Compares the steps of Training with those of a plain loop.");
  ddprun::benchmarks::Flags flags;
  app.add_option("--model", flags.model)->check(CLI::IsMember({"mlp", "gpt", "cnn"}));
  app.add_option("--steps", flags.steps, "steps of a block")->check(CLI::PositiveNumber);
  app.add_option("--rounds", flags.rounds, "blocks of each kind")->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  ddprun::RunWorker({.seed = 1}, [&](ddprun::Worker& worker) { return ddprun::benchmarks::Compare(flags, worker); });
}
