// Trains a small character-level GPT with DistributedDataParallel, and resumes after a restart.
//
//   ddprun --standalone --nproc-per-node=2 --no-python train_gpt --snapshot=/tmp/gpt
//   ddprun --nnodes=2 --nproc-per-node=2 --rdzv-endpoint=node0:29400 --max-restarts=3 --no-python train_gpt ...
//
// Rank 0 writes the snapshots, reads them and sends the state to the others, so no shared directory is needed.
// examples/python/train_gpt.py is the same program in Python.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "examples/cpp/example_main.h"
#include "examples/cpp/gpt/gpt_trainer.h"

namespace {

struct Flags {
  gpt::TrainOptions train;
  examples::CommonFlags common;
  std::string optimizer = "fused";
};

Flags ReadFlags(int argc, char** argv) {
  CLI::App app("Trains a small character-level GPT with DistributedDataParallel.");
  app.get_formatter()->column_width(36);
  app.option_defaults()->always_capture_default();
  Flags flags;
  gpt::TrainOptions& train = flags.train;
  app.add_option("--text", train.text, "file to learn from, or a folder of files");
  app.add_option("--steps", train.steps, "total optimizer steps")->check(examples::AtLeast(1));
  app.add_option("--batch-size,--batch", train.batch_size, "blocks per rank and step")->check(examples::AtLeast(1));
  app.add_option("--block-size", train.model.block_size, "context length in characters");
  app.add_option("--n-layer", train.model.n_layer, "transformer blocks");
  app.add_option("--n-head", train.model.n_head, "attention heads");
  app.add_option("--n-embd", train.model.n_embd, "width, a multiple of --n-head");
  app.add_option("--dropout", train.model.dropout, "dropout probability in training");
  app.add_option("--lr", train.lr, "peak learning rate")->check(examples::Positive());
  app.add_option("--weight-decay", train.weight_decay, "of linear layers' weights")->check(examples::AtLeast(0));
  app.add_option("--optimizer", flags.optimizer, "AdamW's kernel: fused, foreach or loop");
  app.add_option("--seed", train.seed, "seed of weights, dropout and the order of samples");
  app.add_option("--snapshot", train.snapshot, "folder to save to and to resume from");
  app.add_option("--snapshot-every", train.snapshot_every, "steps between snapshots")->check(examples::AtLeast(1));
  app.add_option("--log-every", train.log_every, "steps between lines of output")->check(examples::AtLeast(1));
  app.add_option("--tensorboard", train.tensorboard, "folder for TensorBoard's event files");
  app.add_option("--sample", train.sample, "characters to write at the end")->check(examples::AtLeast(0));
  examples::AddCommonFlags(app, &flags.common);
  examples::ParseFlags(app, argc, argv);

  const std::map<std::string, ddprun::AdamWKernel> kernels = {{"fused", ddprun::AdamWKernel::kFused},
                                                              {"foreach", ddprun::AdamWKernel::kForeach},
                                                              {"loop", ddprun::AdamWKernel::kLoop}};
  const auto kernel = kernels.find(flags.optimizer);
  if (kernel == kernels.end()) {
    examples::UsageError(absl::StrCat("--optimizer is ", flags.optimizer, ", but must be fused, foreach or loop"));
  }
  train.kernel = kernel->second;
  if (absl::Status status = gpt::Check(train.model); !status.ok()) {
    examples::UsageError(std::string(status.message()));
  }
  return flags;
}

absl::Status TrainAndSample(ddprun::Worker& worker, const gpt::TrainOptions& options) {
  DDPRUN_RETURN_IF_ERROR(worker.InitProcessGroup());
  char host[256] = "";
  gethostname(host, sizeof(host) - 1);
  examples::Say(absl::StrCat("rank ", worker.env().rank, " of ", worker.env().world_size, ": pid ", getpid(), " on ",
                             host, ", ", worker.group()->backend(), ", restarts so far ", worker.env().restart_count));
  DDPRUN_ASSIGN_OR_RETURN(const auto trainer, gpt::Trainer::Create(worker, options));
  DDPRUN_RETURN_IF_ERROR(trainer->Train());
  trainer->Sample();
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  const Flags flags = ReadFlags(argc, argv);
  const ddprun::WorkerOptions options = {.device = examples::DeviceFor(flags.common),
                                         .seed = static_cast<uint64_t>(flags.train.seed)};
  return examples::Run(flags.common.spawn, options,
                       [&](ddprun::Worker& worker) { return TrainAndSample(worker, flags.train); });
}
