// Counterpart of step_trainer.py on the worker runtime, with the same flags, models, batches and answers, which are
// documented there.
#include <ATen/ATen.h>
#include <stdio.h>
#include <time.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/utils.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "examples/cpp/gpt/model.h"
#include "worker_runtime/ddp/distributed_data_parallel.h"
#include "worker_runtime/ddp/shared_memory_all_reduce.h"
#include "worker_runtime/extras/nn.h"
#include "worker_runtime/extras/optim.h"
#include "worker_runtime/worker.h"

namespace ddprun::benchmarks {
namespace {

constexpr int64_t kTokens = 200'000;
constexpr int64_t kStride = 7919;
constexpr int64_t kClasses = 16;
constexpr int64_t kFeatures = 64;
constexpr int64_t kWidth = 128;  // width of the MLP

struct Flags {
  std::string model = "gpt";
  gpt::Config config;
  int64_t batch = 8;
  std::string optimizer = "default";
  bool bucket_view = false;
  bool static_graph = false;
  std::string hook = "none";
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
  app.add_flag("--bucket-view", flags.bucket_view);
  app.add_flag("--static-graph", flags.static_graph);
  app.add_option("--hook", flags.hook)->check(CLI::IsMember({"none", "shared-memory"}));
}

double Seconds(clockid_t clock) {
  timespec time;
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// A benchmark model.
class Net : public torch::nn::Module {
 public:
  virtual at::Tensor forward(const at::Tensor& x) = 0;
  // Returns the loss, a float scalar, for the output of forward.
  virtual at::Tensor Loss(const at::Tensor& logits, const at::Tensor& y) const {
    return at::cross_entropy_loss(logits, y);
  }
};

// The GPT of examples/cpp/gpt.
class GptNet : public Net {
 public:
  explicit GptNet(const gpt::Config& config) : model_(register_module("model", gpt::Model(config))) {}
  at::Tensor forward(const at::Tensor& x) override { return model_->forward(x); }
  at::Tensor Loss(const at::Tensor& logits, const at::Tensor& y) const override { return gpt::Loss(logits, y); }

 private:
  gpt::Model model_;
};

// Four linear layers with 128 neurons between them: so small that overhead besides the arithmetic shows.
class MlpNet : public Net {
 public:
  MlpNet()
      : first_(register_module("first", Linear(kFeatures, kWidth))),
        second_(register_module("second", Linear(kWidth, kWidth))),
        third_(register_module("third", Linear(kWidth, kWidth))),
        head_(register_module("head", Linear(kWidth, kClasses))) {}
  at::Tensor forward(const at::Tensor& x) override {
    return head_->forward(at::relu(third_->forward(at::relu(second_->forward(at::relu(first_->forward(x)))))));
  }

 private:
  Linear first_, second_, third_, head_;
};

// Three convolutions with batch normalization, 16 to 64 channels, on the features as 32 x 32 images.
class CnnNet : public Net {
 public:
  CnnNet() {
    int64_t channels = 1;
    for (const int64_t next : {16, 32, 64}) {
      const std::string number = std::to_string(convolutions_.size());
      convolutions_.push_back(register_module(
          "conv" + number, torch::nn::Conv2d(torch::nn::Conv2dOptions(channels, next, /*kernel_size=*/3).padding(1))));
      norms_.push_back(register_module("norm" + number, torch::nn::BatchNorm2d(next)));
      channels = next;
    }
    head_ = register_module("head", Linear(channels * 4 * 4, kClasses));
  }
  at::Tensor forward(const at::Tensor& x) override {
    at::Tensor image = at::upsample_nearest2d(x.view({-1, 1, 8, 8}), {32, 32});
    for (size_t i = 0; i < convolutions_.size(); ++i) {
      image = at::max_pool2d(at::relu(norms_[i]->forward(convolutions_[i]->forward(image))), 2);
    }
    return head_->forward(image.flatten(1));
  }

 private:
  std::vector<torch::nn::Conv2d> convolutions_;
  std::vector<torch::nn::BatchNorm2d> norms_;
  Linear head_{nullptr};
};

// The mean of a sequence's embeddings, and a linear layer: nearly all parameters are in one table, so the all-reduce
// and the optimizer take most of the time.
class EmbeddingNet : public Net {
 public:
  EmbeddingNet(int64_t vocab, int64_t width)
      : table_(register_module("table", torch::nn::Embedding(vocab, width))),
        head_(register_module("head", Linear(width, kClasses))) {}
  at::Tensor forward(const at::Tensor& x) override { return head_->forward(table_->forward(x).mean(1)); }
  at::Tensor Loss(const at::Tensor& logits, const at::Tensor& y) const override {
    return at::cross_entropy_loss(logits, y.select(1, -1).remainder(kClasses));
  }

 private:
  torch::nn::Embedding table_;
  Linear head_;
};

std::shared_ptr<Net> MakeNet(const std::string& model, const gpt::Config& config) {
  if (model == "gpt") return std::make_shared<GptNet>(config);
  if (model == "cnn") return std::make_shared<CnnNet>();
  if (model == "embedding") return std::make_shared<EmbeddingNet>(config.vocab_size, config.n_embd);
  return std::make_shared<MlpNet>();
}

at::Tensor RandomText(int64_t vocab) {
  torch::manual_seed(7);
  return at::randint(vocab, {kTokens}, at::kLong);
}

// Sequences of a random text with their next tokens: a function of step and rank. Reseeds LibTorch's default generator.
// For the GPT and the embedding: x, y int64 [batch, block], tokens below vocab_size. For the MLP and the CNN: x float
// [batch, kFeatures], y int64 [batch] below kClasses.
class Batches {
 public:
  explicit Batches(const Flags& flags)
      : batch_(flags.batch),
        tokens_(flags.model == "gpt" || flags.model == "embedding"),
        length_(tokens_ ? flags.config.block_size : kFeatures),
        text_(RandomText(flags.config.vocab_size)),
        within_(at::arange(length_ + 1, at::kLong)),
        samples_(at::arange(batch_, at::kLong)) {}

  std::pair<at::Tensor, at::Tensor> Get(int64_t step, int rank, int world) const {
    const int64_t first = (step * world + rank) * batch_;
    const at::Tensor starts = ((samples_ + first) * kStride).remainder(kTokens - (length_ + 1));
    const at::Tensor rows = text_.index({starts.unsqueeze(1) + within_});
    const at::Tensor x = rows.narrow(1, 0, length_);
    if (tokens_) return {x, rows.narrow(1, 1, length_)};
    return {x.to(at::kFloat) / 128, rows.select(1, length_).remainder(kClasses)};
  }

 private:
  const int64_t batch_;
  const bool tokens_;
  const int64_t length_;
  const at::Tensor text_;
  const at::Tensor within_;   // offsets 0 to the sequence length, inclusive
  const at::Tensor samples_;  // 0 to batch - 1
};

using Ddp = DistributedDataParallel<Net>;

// One rank's model, data and optimizer.
class Trainer {
 public:
  static absl::StatusOr<Trainer> Create(const Flags& flags, const Worker& worker) {
    DDPRUN_RETURN_IF_ERROR(gpt::Check(flags.config));
    Batches batches(flags);
    torch::manual_seed(1);
    const std::shared_ptr<Net> net = MakeNet(flags.model, flags.config);
    DDPRUN_ASSIGN_OR_RETURN(
        std::shared_ptr<Ddp> ddp,
        MakeDistributedDataParallel(
            net, worker.group(), {.gradient_as_bucket_view = flags.bucket_view, .static_graph = flags.static_graph}));
    if (flags.hook == "shared-memory") {
      DDPRUN_ASSIGN_OR_RETURN(std::shared_ptr<SharedMemoryAllReduce> shared,
                              SharedMemoryAllReduce::Create(worker.group()));
      DDPRUN_RETURN_IF_ERROR(ddp->RegisterCommHook(shared->Hook()));
    }
    return Trainer(flags, worker, std::move(batches), std::move(ddp));
  }

  // Trains `count` steps and returns the answer.
  std::string Steps(int count) {
    std::vector<double> seconds;
    double loss = 0;
    const double cpu = Seconds(CLOCK_PROCESS_CPUTIME_ID);
    for (int i = 0; i < count; ++i) {
      const double began = Seconds(CLOCK_MONOTONIC);
      loss = Step();
      seconds.push_back(Seconds(CLOCK_MONOTONIC) - began);
    }
    return absl::StrFormat("{\"seconds\": [%s], \"cpu\": %.9f, \"loss\": %.9g}", absl::StrJoin(seconds, ", "),
                           Seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu, loss);
  }

 private:
  Trainer(const Flags& flags, const Worker& worker, Batches batches, std::shared_ptr<Ddp> ddp)
      : bucket_view_(flags.bucket_view), worker_(&worker), batches_(std::move(batches)), ddp_(std::move(ddp)) {
    const std::vector<torch::optim::OptimizerParamGroup> groups = {
        torch::optim::OptimizerParamGroup(ddp_->module()->parameters())};
    const torch::optim::AdamWOptions options(1e-3);
    optimizer_ = flags.optimizer == "fused" ? std::make_unique<AdamW>(groups, options, AdamWKernel::kFused)
                                            : std::make_unique<AdamW>(groups, options);
  }

  double Step() {
    const auto [x, y] = batches_.Get(done_++, worker_->env().rank, worker_->env().world_size);
    // With gradients as views, set_to_none would only make the reducer copy again.
    ddp_->zero_grad(/*set_to_none=*/!bucket_view_);
    at::Tensor loss = ddp_->module()->Loss(ddp_->forward(x), y);
    loss.backward();
    optimizer_->step();
    return loss.item<double>();
  }

  bool bucket_view_;
  const Worker* worker_;
  Batches batches_;
  std::shared_ptr<Ddp> ddp_;
  std::unique_ptr<AdamW> optimizer_;
  int64_t done_ = 0;
};

absl::Status Train(const Flags& flags, Worker& worker) {
  DDPRUN_RETURN_IF_ERROR(worker.InitProcessGroup());
  DDPRUN_ASSIGN_OR_RETURN(Trainer trainer, Trainer::Create(flags, worker));
  for (std::string line; std::getline(std::cin, line);) {
    int count = 0;
    if (!absl::SimpleAtoi(line, &count)) {
      return absl::InvalidArgumentError(absl::StrCat("step_trainer: not a number of steps: ", line));
    }
    absl::PrintF("%s\n", trainer.Steps(count));
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
  ddprun::RunWorker({}, [&flags](ddprun::Worker& worker) { return ddprun::benchmarks::Train(flags, worker); });
}
