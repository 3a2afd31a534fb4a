// Counterpart of step_trainer.py on the worker runtime, with the same flags, models, batches, commands and answers,
// which are documented there. The kinds of "save" are "sync" and "async".
#include <ATen/ATen.h>
#include <stdio.h>
#include <torch/utils.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "benchmarks/ddp/batches.h"
#include "benchmarks/ddp/benchmark_net.h"
#include "benchmarks/ddp/clocks.h"
#include "worker_runtime/base/status_macros.h"
#include "worker_runtime/checkpoint/checkpointer.h"
#include "worker_runtime/ddp/distributed_data_parallel.h"
#include "worker_runtime/ddp/shared_memory_all_reduce.h"
#include "worker_runtime/extras/optim/adamw.h"
#include "worker_runtime/extras/optim/zero_redundancy_optimizer.h"
#include "worker_runtime/worker.h"

namespace ddprun::benchmarks {
namespace {

struct Flags {
  std::string model = "gpt";
  gpt::Config config;
  int64_t batch = 8;
  std::string optimizer = "default";
  std::optional<double> bucket_cap_mb;
  bool measure_bucket_cap = false;
  bool bucket_view = false;
  bool zero = false;
  std::string sync = "overlap";
  std::string hook = "none";
  std::string checkpoints;
  int steps = 0;
};

void AddFlags(CLI::App& app, Flags& flags) {
  app.add_option("--model", flags.model)->check(CLI::IsMember({"mlp", "gpt", "cnn", "embedding"}));
  app.add_option("--layers", flags.config.n_layer);
  app.add_option("--heads", flags.config.n_head);
  app.add_option("--width", flags.config.n_embd);
  app.add_option("--block", flags.config.block_size);
  app.add_option("--vocab", flags.config.vocab_size);
  app.add_option("--batch", flags.batch);
  app.add_option("--optimizer", flags.optimizer)->check(CLI::IsMember({"default", "fused"}));
  app.add_option("--bucket-cap-mb", flags.bucket_cap_mb);
  app.add_flag("--measure-bucket-cap", flags.measure_bucket_cap);
  app.add_flag("--bucket-view", flags.bucket_view);
  app.add_flag("--zero", flags.zero, "shard the optimizer's state across the ranks");
  app.add_option("--sync", flags.sync)->check(CLI::IsMember({"overlap", "none"}));
  app.add_option("--hook", flags.hook)->check(CLI::IsMember({"none", "shared-memory"}));
  app.add_option("--checkpoints", flags.checkpoints, "folder for the save command");
  app.add_option("--steps", flags.steps);
}

struct Run {
  std::vector<double> seconds;  // per step
  double cpu = 0;               // seconds, all threads
  double loss = 0;              // of the last step
};

std::string Json(const std::vector<double>& numbers) { return absl::StrCat("[", absl::StrJoin(numbers, ", "), "]"); }

uint64_t FolderBytes(const std::string& folder) {
  uint64_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) bytes += entry.file_size();
  return bytes;
}

using Ddp = DistributedDataParallel<Net>;

// One rank's model, data and optimizer.
class Trainer {
 public:
  static absl::StatusOr<Trainer> Create(const Flags& flags, const Worker& worker) {
    Batches batches = TakesTokens(flags.model)
                          ? Batches::OfTokens(flags.batch, flags.config.block_size, flags.config.vocab_size)
                          : Batches::OfFeatures(flags.batch, flags.config.vocab_size);
    if (absl::Status status = gpt::Check(flags.config); !status.ok()) return status;
    torch::manual_seed(1);
    const std::shared_ptr<Net> net = MakeNet(flags.model, flags.config);
    DdpOptions options;
    options.bucket_cap_mb = flags.bucket_cap_mb;
    options.measure_bucket_cap = flags.measure_bucket_cap;
    options.gradient_as_bucket_view = flags.bucket_view;
    absl::StatusOr<std::shared_ptr<Ddp>> ddp = MakeDistributedDataParallel(net, worker.group(), options);
    if (!ddp.ok()) return ddp.status();
    if (flags.hook == "shared-memory") {
      absl::StatusOr<std::shared_ptr<SharedMemoryAllReduce>> shared = SharedMemoryAllReduce::Create(worker.group());
      if (!shared.ok()) return shared.status();
      if (absl::Status status = (*ddp)->RegisterCommHook((*shared)->Hook()); !status.ok()) return status;
    }
    return Trainer(flags, worker, std::move(batches), *std::move(ddp));
  }

  double Step() {
    const auto [x, y] = batches_.Get(done_++, worker_->env().rank, worker_->env().world_size);
    // With gradients as views, set_to_none would only make the reducer copy again.
    ddp_->zero_grad(/*set_to_none=*/!flags_.bucket_view);
    const at::Tensor loss = ForwardAndBackward(x, y);
    optimizer_->step();
    return loss.item<double>();
  }

  Run Steps(int count) {
    Run run;
    const double cpu = CpuSeconds();
    for (int i = 0; i < count; ++i) {
      const double began = Now();
      run.loss = Step();
      run.seconds.push_back(Now() - began);
    }
    run.cpu = CpuSeconds() - cpu;
    return run;
  }

  // Saves, trains `count` steps, and waits until the checkpoint is on disk.
  absl::StatusOr<std::string> Save(const std::string& kind, int count) {
    std::unique_ptr<Checkpointer>& checkpointer = checkpointers_[kind];
    const std::string folder = absl::StrCat(flags_.checkpoints, "/", kind);
    if (checkpointer == nullptr) {
      CheckpointerOptions options{.folder = folder, .keep = 1, .async = kind == "async"};
      auto created = Checkpointer::Create(worker_->group(), *ddp_->module(), optimizer_.get(), std::move(options));
      if (!created.ok()) return created.status();
      checkpointer = *std::move(created);
    }
    if (absl::Status status = worker_->group()->Barrier(); !status.ok()) return status;
    const double began = Now();
    if (absl::Status status = checkpointer->Save({.step = done_}); !status.ok()) return status;
    const double held = Now() - began;
    const Run run = Steps(count);
    if (absl::Status status = checkpointer->Finish(); !status.ok()) return status;
    const double written = absl::ToDoubleSeconds(checkpointer->stats().last_write);
    return absl::StrFormat("{\"held\": %.9f, \"seconds\": %s, \"bytes\": %d, \"written\": %.9f}", held,
                           Json(run.seconds), FolderBytes(folder), written);
  }

  // Executes a command and returns the answer.
  absl::StatusOr<std::string> Obey(const std::string& line) {
    std::istringstream words(line);
    std::string word;
    int count = 0;
    words >> word;
    if (word == "steps" && words >> count) {
      const Run run = Steps(count);
      return absl::StrFormat("{\"seconds\": %s, \"cpu\": %.9f, \"loss\": %.9g}", Json(run.seconds), run.cpu, run.loss);
    }
    if (word == "cap") return absl::StrFormat("{\"mb\": %.3f}", ddp_->bucket_cap_mb().value_or(0));
    if (word == "state") return absl::StrFormat("{\"bytes\": %d}", StateBytes());
    std::string kind;
    if (word == "save" && words >> kind >> count && (kind == "sync" || kind == "async")) return Save(kind, count);
    return absl::InvalidArgumentError(absl::StrCat("step_trainer: no such command: ", line));
  }

 private:
  Trainer(const Flags& flags, const Worker& worker, Batches batches, std::shared_ptr<Ddp> ddp)
      : flags_(flags), worker_(&worker), batches_(std::move(batches)), ddp_(std::move(ddp)) {
    const std::vector<at::Tensor> parameters = ddp_->module()->parameters();
    const auto make = [&flags](const std::vector<torch::optim::OptimizerParamGroup>& groups) {
      const torch::optim::AdamWOptions options(1e-3);
      return flags.optimizer == "fused" ? std::make_unique<AdamW>(groups, options, AdamWKernel::kFused)
                                        : std::make_unique<AdamW>(groups, options);
    };
    if (flags.zero) {
      optimizer_ = std::make_unique<ZeroRedundancyOptimizer>(worker.group(), parameters, make);
    } else {
      optimizer_ = make({torch::optim::OptimizerParamGroup(parameters)});
    }
  }

  // Size of the optimizer moments stored on this rank.
  int64_t StateBytes() const {
    int64_t bytes = 0;
    for (const auto& [parameter, state] : optimizer_->state()) {
      const auto& moments = static_cast<const torch::optim::AdamWParamState&>(*state);
      bytes += static_cast<int64_t>(moments.exp_avg().nbytes() + moments.exp_avg_sq().nbytes());
    }
    return bytes;
  }

  at::Tensor ForwardAndBackward(const at::Tensor& x, const at::Tensor& y) {
    if (flags_.sync == "none") {
      const auto no_sync = ddp_->no_sync();
      return Backward(ddp_->module()->Loss(ddp_->forward(x), y));
    }
    return Backward(ddp_->module()->Loss(ddp_->forward(x), y));
  }

  static at::Tensor Backward(at::Tensor loss) {
    loss.backward();
    return loss;
  }

  Flags flags_;
  const Worker* worker_;
  Batches batches_;
  std::shared_ptr<Ddp> ddp_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  std::map<std::string, std::unique_ptr<Checkpointer>> checkpointers_;  // by kind of save
  int64_t done_ = 0;
};

absl::Status Train(const Flags& flags, Worker& worker) {
  absl::StatusOr<Trainer> trainer = Trainer::Create(flags, worker);
  if (!trainer.ok()) return trainer.status();
  if (flags.steps > 0) {
    trainer->Steps(flags.steps);
    if (worker.env().rank == 0) absl::PrintF("{\"first\": %.9f}\n", Now());
    return absl::OkStatus();
  }
  for (std::string line; std::getline(std::cin, line);) {
    const absl::StatusOr<std::string> answer = trainer->Obey(line);
    if (!answer.ok()) return answer.status();
    absl::PrintF("%s\n", *answer);
    fflush(stdout);
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace ddprun::benchmarks

int main(int argc, char** argv) {
  CLI::App app("Trains a small model and reports the step times.");
  ddprun::benchmarks::Flags flags;
  ddprun::benchmarks::AddFlags(app, flags);
  CLI11_PARSE(app, argc, argv);
  ddprun::RunWorker({}, [&flags](ddprun::Worker& worker) -> absl::Status {
    DDPRUN_RETURN_IF_ERROR(worker.InitProcessGroup());
    return ddprun::benchmarks::Train(flags, worker);
  });
}
