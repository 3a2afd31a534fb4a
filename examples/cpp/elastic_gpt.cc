// The GPT of train_gpt, with training that loses no step when workers die: survivors keep their processes, and a
// replacement worker gets the training state from them.
//
//   ddprun --standalone --nproc-per-node=2 --max-restarts=3 --no-python elastic_gpt --snapshot=/tmp/gpt
//
// Kill a worker: the losses are bit for bit the same as without the kill.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "examples/cpp/example_main.h"
#include "examples/cpp/gpt/model.h"
#include "examples/cpp/gpt/text_dataset.h"
#include "worker_runtime/base/parameters.h"
#include "worker_runtime/data/batch_sampler.h"
#include "worker_runtime/ddp/distributed_data_parallel.h"
#include "worker_runtime/extras/optim.h"
#include "worker_runtime/training.h"
#include "worker_runtime/worker.h"

namespace {

struct Flags {
  std::string text = ddprun::kDefaultText;
  gpt::Config model = {.block_size = 64, .n_layer = 2, .n_head = 4, .n_embd = 64};
  int64_t batch_size = 16;
  bool keep_global_batch = false;
  double lr = 3e-3;
  int64_t seed = 1;
  int64_t log_every = 1;
  int64_t held_out = 0;
  int64_t evaluate_every = 100;
  ddprun::TrainingOptions train = {.steps = 400, .checkpoint_every = 50};
  examples::CommonFlags common;
};

Flags ReadFlags(int argc, char** argv) {
  CLI::App app("Trains a small GPT elastically: workers may die, join and leave.");
  app.get_formatter()->column_width(36);
  app.option_defaults()->always_capture_default();
  Flags flags;
  app.add_option("--text", flags.text, "file to learn from, or a folder of files");
  app.add_option("--steps", flags.train.steps, "total optimizer steps")->check(examples::AtLeast(1));
  app.add_option("--batch-size,--batch", flags.batch_size, "blocks per step")->check(examples::AtLeast(1));
  app.add_flag("--keep-global-batch", flags.keep_global_batch, "--batch-size is the global batch size, not per rank");
  app.add_option("--block-size", flags.model.block_size, "context length in characters");
  app.add_option("--n-layer", flags.model.n_layer, "transformer blocks");
  app.add_option("--n-head", flags.model.n_head, "attention heads");
  app.add_option("--n-embd", flags.model.n_embd, "width, a multiple of --n-head");
  app.add_option("--dropout", flags.model.dropout, "dropout probability in training");
  app.add_option("--lr", flags.lr, "peak learning rate")->check(examples::Positive());
  app.add_option("--seed", flags.seed, "seed of weights, dropout and the order of samples");
  app.add_option("--snapshot", flags.train.checkpoint.folder, "folder to save to and to resume from");
  app.add_option("--snapshot-every", flags.train.checkpoint_every, "steps between snapshots")
      ->check(examples::AtLeast(1));
  app.add_flag("--async-snapshot", flags.train.checkpoint.async, "write snapshots in the background");
  app.add_option("--held-out", flags.held_out, "blocks held out from training for evaluation");
  app.add_option("--evaluate-every", flags.evaluate_every, "steps between evaluations")->check(examples::AtLeast(1));
  app.add_option("--log-every", flags.log_every, "steps between lines of output")->check(examples::AtLeast(1));
  examples::AddCommonFlags(app, &flags.common);
  examples::ParseFlags(app, argc, argv);
  return flags;
}

// Mean loss of the blocks from `first` to the last, divided among the ranks. Collective.
absl::StatusOr<double> HeldOutLoss(gpt::Model& model, const ddprun::TextDataset& dataset, int64_t first,
                                   ddprun::Worker& worker) {
  at::Tensor sum = at::zeros({1}, at::TensorOptions(at::kDouble));
  for (int64_t block = first + worker.env().rank; block < dataset.block_count(); block += worker.env().world_size) {
    const ddprun::TextDataset::Example blocks = dataset.get_batch({static_cast<size_t>(block)});
    sum += gpt::Loss(model->forward(blocks.tokens.to(worker.device())), blocks.targets.to(worker.device())).cpu();
  }
  sum = sum.to(worker.group()->device());
  DDPRUN_RETURN_IF_ERROR(worker.group()->AllReduce(sum, ddprun::ReduceOp::kSum));
  return sum.item<double>() / static_cast<double>(dataset.block_count() - first);
}

// Prints how long each phase of a recovery took, starting at the suspend request. The first time is CLOCK_MONOTONIC's.
void SayRecovery(int rank, const ddprun::RecoveryTimes& times) {
  std::string text = absl::StrFormat("rank %d: round %d goes on after step %d", rank, times.round, times.step);
  if (times.suspended.has_value()) {
    absl::StrAppendFormat(&text, "; suspended at %.4f s, then", absl::ToDoubleSeconds(times.suspended->since_start()));
  }
  const auto add = [&](absl::string_view name, const std::optional<ddprun::SteadyTime>& at) {
    if (!at.has_value() || !times.suspended.has_value()) return;
    absl::StrAppendFormat(&text, " %s +%.1f ms", name, absl::ToDoubleMilliseconds(*at - *times.suspended));
  };
  add("rolled back", times.rolled_back);
  add("re-form", times.re_formed);
  add("group", times.group_formed);
  add("state", times.state_synced);
  add("first step", times.first_step);
  examples::Say(text);
}

absl::Status Train(const Flags& flags, ddprun::Worker& worker) {
  examples::Say(absl::StrCat("rank ", worker.env().rank, " of ", worker.env().world_size, ": pid ", getpid(),
                             ", restarts so far ", worker.env().restart_count));
  DDPRUN_ASSIGN_OR_RETURN(const std::string text, ddprun::ReadText(flags.text));
  DDPRUN_ASSIGN_OR_RETURN(const auto dataset, ddprun::TextDataset::FromText(text, flags.model.block_size));
  const int64_t learned = dataset.block_count() - flags.held_out;
  if (flags.held_out < 0 || learned < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("--held-out=", flags.held_out, ": the text has ", dataset.block_count(), " blocks"));
  }
  gpt::Config config = flags.model;
  config.vocab_size = dataset.vocab_size();
  DDPRUN_RETURN_IF_ERROR(gpt::Check(config));
  gpt::Model model(config);
  model->to(worker.device());
  ddprun::DistributedDataParallel ddp(model);
  ddprun::AdamW optimizer(ddprun::Parameters(model), torch::optim::AdamWOptions(flags.lr));
  ddprun::LambdaLR scheduler(optimizer, ddprun::CosineWithWarmup(20, flags.train.steps, /*min_factor=*/0.1));
  ddprun::BatchSampler sampler(
      learned, {.batch_size = flags.batch_size, .keep_global_batch = flags.keep_global_batch, .seed = flags.seed});
  ddprun::Training training(worker, ddp, optimizer, flags.train);
  training.Add(scheduler, sampler);

  const auto evaluate = [&](int64_t steps) -> absl::Status {
    DDPRUN_ASSIGN_OR_RETURN(const double loss, HeldOutLoss(model, dataset, learned, worker));
    if (worker.env().rank != 0) return absl::OkStatus();
    examples::Say(absl::StrFormat("step %d  %d ranks evaluate: loss %.17g", steps, worker.env().world_size, loss));
    return absl::OkStatus();
  };
  if (flags.held_out > 0) training.EvaluateEvery(flags.evaluate_every, evaluate);
  uint64_t told = 0;
  return training.Run([&](ddprun::Step& step) {
    const ddprun::TextDataset::Example blocks = dataset.get_batch(step.Next(sampler));
    const at::Tensor loss = gpt::Loss(ddp(blocks.tokens.to(worker.device())), blocks.targets.to(worker.device()));
    step.Backward(loss);
    step.ClipGradNorm(1.0);
    step.Commit();
    const int64_t steps = step.number() + 1;
    if (steps % flags.log_every == 0 || steps == flags.train.steps) {
      examples::Say(absl::StrFormat("step %d  epoch %d  round %d  rank %d of %d has loss %.9g", steps, sampler.epoch(),
                                    worker.env().round, worker.env().rank, worker.env().world_size,
                                    loss.item<float>()));
    }
    if (worker.recovery().round != told) SayRecovery(worker.env().rank, worker.recovery());
    told = worker.recovery().round;
  });
}

}  // namespace

int main(int argc, char** argv) {
  const Flags flags = ReadFlags(argc, argv);
  ddprun::RunWorker({.device = examples::DeviceFor(flags.common), .seed = static_cast<uint64_t>(flags.seed)},
                    [&](ddprun::Worker& worker) { return Train(flags, worker); });
}
