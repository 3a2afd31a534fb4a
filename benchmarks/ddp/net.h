#ifndef DDPRUN_BENCHMARKS_DDP_NET_H_
#define DDPRUN_BENCHMARKS_DDP_NET_H_

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>

#include "benchmarks/ddp/batches.h"
#include "examples/cpp/gpt/model.h"
#include "worker_runtime/nn/linear.h"

namespace ddprun::bench {

// A model that is measured. Thread-compatible.
class Net : public torch::nn::Module {
 public:
  virtual at::Tensor forward(const at::Tensor& x) = 0;
  // Of forward's output: a float scalar.
  virtual at::Tensor Loss(const at::Tensor& logits, const at::Tensor& y) const = 0;
};

// examples/cpp/gpt.
class GptNet : public Net {
 public:
  explicit GptNet(const gpt::Config& config);
  at::Tensor forward(const at::Tensor& x) override;
  at::Tensor Loss(const at::Tensor& logits, const at::Tensor& y) const override;

 private:
  gpt::Model model_;
};

// Four linear layers with 128 neurons between them: so small that all that is not arithmetic shows.
class MlpNet : public Net {
 public:
  MlpNet();
  at::Tensor forward(const at::Tensor& x) override;
  at::Tensor Loss(const at::Tensor& logits, const at::Tensor& y) const override;

 private:
  static constexpr int64_t kWidth = 128;

  Linear first_, second_, third_, head_;
};

}  // namespace ddprun::bench

#endif  // DDPRUN_BENCHMARKS_DDP_NET_H_
