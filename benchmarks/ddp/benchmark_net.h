#ifndef DDPRUN_BENCHMARKS_DDP_BENCHMARK_NET_H_
#define DDPRUN_BENCHMARKS_DDP_BENCHMARK_NET_H_

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "benchmarks/ddp/batches.h"
#include "examples/cpp/gpt/model.h"
#include "worker_runtime/extras/nn/linear.h"

namespace ddprun::benchmarks {

// A benchmark model. Thread-compatible.
class Net : public torch::nn::Module {
 public:
  virtual at::Tensor forward(const at::Tensor& x) = 0;
  // Returns the loss, a float scalar, for the output of forward.
  virtual at::Tensor Loss(const at::Tensor& logits, const at::Tensor& y) const = 0;
};

// The GPT of examples/cpp/gpt.
class GptNet : public Net {
 public:
  explicit GptNet(const gpt::Config& config);
  at::Tensor forward(const at::Tensor& x) override;
  at::Tensor Loss(const at::Tensor& logits, const at::Tensor& y) const override;

 private:
  gpt::Model model_;
};

// Four linear layers with 128 neurons between them: so small that overhead besides the arithmetic shows.
class MlpNet : public Net {
 public:
  MlpNet();
  at::Tensor forward(const at::Tensor& x) override;
  at::Tensor Loss(const at::Tensor& logits, const at::Tensor& y) const override;

 private:
  static constexpr int64_t kWidth = 128;

  Linear first_, second_, third_, head_;
};

// Three convolutions with batch normalization, 16 to 64 channels, on the features as 32 x 32 images.
class CnnNet : public Net {
 public:
  CnnNet();
  at::Tensor forward(const at::Tensor& x) override;
  at::Tensor Loss(const at::Tensor& logits, const at::Tensor& y) const override;

 private:
  std::vector<torch::nn::Conv2d> convolutions_;
  std::vector<torch::nn::BatchNorm2d> norms_;
  Linear head_{nullptr};
};

// The mean of a sequence's embeddings, and a linear layer: nearly all parameters are in one table, so the all-reduce
// and the optimizer take most of the time.
class EmbeddingNet : public Net {
 public:
  EmbeddingNet(int64_t vocab, int64_t width);
  at::Tensor forward(const at::Tensor& x) override;
  at::Tensor Loss(const at::Tensor& logits, const at::Tensor& y) const override;

 private:
  torch::nn::Embedding table_;
  Linear head_;
};

// Creates a "gpt", "mlp", "cnn" or "embedding". The MLP and the CNN do not use `config`.
std::shared_ptr<Net> MakeNet(const std::string& model, const gpt::Config& config);
// True if the model's batches are tokens.
bool TakesTokens(const std::string& model);

}  // namespace ddprun::benchmarks

#endif  // DDPRUN_BENCHMARKS_DDP_BENCHMARK_NET_H_
