// Trains the GPT in one process as torch::nn::parallel::data_parallel does: every step makes a replica of the model per
// part of the batch, runs each forward in its own thread, and accumulates the replicas' gradients in the model.
// data_parallel itself requires CUDA devices to scatter to; replicate, which copies the model and links the gradients,
// is LibTorch's own here as well. With --replicas=1 the model runs without any of this.
//
// Backward is one call on the calling thread, as in LibTorch, where the CPU part of the graph has no threads of its
// own; its kernels, and those of the optimizer, use as many threads as there are replicas.
//
// Accepts the command "steps N" of step_trainer.py. The answer also reports the seconds per step spent on replicas.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <stdio.h>
#include <time.h>
#include <torch/nn/parallel/data_parallel.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "benchmarks/ddp/batches.h"
#include "benchmarks/ddp/benchmark_net.h"
#include "benchmarks/ddp/clocks.h"
#include "worker_runtime/base/torch_try.h"
#include "worker_runtime/extras/optim/adamw.h"

namespace ddprun::benchmarks {
namespace {

// A GPT that can be copied. As with torch::nn::Cloneable the copy is first constructed normally, including
// initialization, before it takes over the parameters.
class ReplicableGpt : public GptNet {
 public:
  explicit ReplicableGpt(const gpt::Config& config) : GptNet(config), config_(config) {}

  std::shared_ptr<torch::nn::Module> clone(const std::optional<torch::Device>& device) const override {
    at::NoGradGuard no_grad;
    auto copy = std::make_shared<ReplicableGpt>(config_);
    if (device.has_value()) copy->to(*device);
    const std::vector<at::Tensor> from = parameters(), to = copy->parameters();
    for (size_t i = 0; i < from.size(); ++i) to[i].copy_(from[i]);
    return copy;
  }

 private:
  const gpt::Config config_;
};

class Trainer {
 public:
  Trainer(const gpt::Config& config, int64_t batch, int replicas)
      : replicas_(replicas), batches_(Batches::OfTokens(batch, config.block_size, config.vocab_size)) {
    at::set_num_threads(replicas);
    torch::manual_seed(1);
    model_ = std::make_shared<ReplicableGpt>(config);
    optimizer_ = std::make_unique<AdamW>(model_->parameters(), torch::optim::AdamWOptions(1e-3));
  }

  double Step() {
    const auto [x, y] = batches_.Get(done_++, /*rank=*/0, /*world=*/1);
    optimizer_->zero_grad();
    const at::Tensor loss = model_->Loss(replicas_ == 1 ? model_->forward(x) : ForwardOnReplicas(x), y);
    loss.backward();
    optimizer_->step();
    return loss.item<double>();
  }

  // Returns the seconds spent on making replicas since the last call.
  double TakeReplicating() { return std::exchange(replicating_, 0.0); }

 private:
  at::Tensor ForwardOnReplicas(const at::Tensor& x) {
    const double began = Now();
    const std::vector<torch::Device> devices(replicas_, torch::Device(torch::kCPU));
    std::vector<std::shared_ptr<ReplicableGpt>> replicas = torch::nn::parallel::replicate(model_, devices);
    replicating_ += Now() - began;
    const std::vector<at::Tensor> inputs = x.chunk(replicas_);
    std::vector<at::Tensor> outputs(inputs.size());
    std::vector<std::thread> threads;
    for (size_t i = 0; i < inputs.size(); ++i) {
      threads.emplace_back([&outputs, &replicas, &inputs, i] {
        at::set_num_threads(1);
        outputs[i] = replicas[i]->forward(inputs[i]);
      });
    }
    for (std::thread& thread : threads) thread.join();
    at::set_num_threads(replicas_);
    return at::cat(outputs);
  }

  const int replicas_;
  const Batches batches_;
  std::shared_ptr<ReplicableGpt> model_;
  std::unique_ptr<AdamW> optimizer_;
  int64_t done_ = 0;
  double replicating_ = 0;
};

absl::Status Train(const gpt::Config& config, int64_t batch, int replicas) {
  if (absl::Status status = gpt::Check(config); !status.ok()) return status;
  Trainer trainer(config, batch, replicas);
  std::string word;
  for (int count = 0; std::cin >> word >> count;) {
    if (word != "steps") return absl::InvalidArgumentError(absl::StrCat("data_parallel: no such command: ", word));
    const double cpu = CpuSeconds();
    double loss = 0;
    std::vector<double> seconds;
    for (int i = 0; i < count; ++i) {
      const double began = Now();
      loss = trainer.Step();
      seconds.push_back(Now() - began);
    }
    absl::PrintF("{\"seconds\": [%s], \"cpu\": %.9f, \"loss\": %.9g, \"replicating\": %.9f}\n",
                 absl::StrJoin(seconds, ", "), CpuSeconds() - cpu, loss, trainer.TakeReplicating() / count);
    fflush(stdout);
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace ddprun::benchmarks

int main(int argc, char** argv) {
  CLI::App app("Trains the GPT with replicas of the model in one process.");
  gpt::Config config;
  int64_t batch = 16;
  int replicas = 2;
  app.add_option("--layers", config.n_layer);
  app.add_option("--heads", config.n_head);
  app.add_option("--width", config.n_embd);
  app.add_option("--block", config.block_size);
  app.add_option("--vocab", config.vocab_size);
  app.add_option("--batch", batch);
  app.add_option("--replicas", replicas)->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  const absl::Status status =
      ddprun::TorchTry("training", [&] { return ddprun::benchmarks::Train(config, batch, replicas); });
  if (status.ok()) return 0;
  fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  return 1;
}
