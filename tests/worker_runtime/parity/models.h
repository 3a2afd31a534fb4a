#ifndef DDPRUN_TESTS_WORKER_RUNTIME_PARITY_MODELS_H_
#define DDPRUN_TESTS_WORKER_RUNTIME_PARITY_MODELS_H_

#include <ATen/core/Tensor.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>

#include <cstdint>
#include <utility>

#include "worker_runtime/extras/nn.h"

namespace ddprun::testing {

// Small models that twin.py has too. x: [batch, 5, 16]; outputs: [batch, 5, 8]. The members' order is that of the
// parameters.

struct Mlp : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) { return fc2(fc1(x).relu()); }
  Linear fc1 = register_module("fc1", Linear(16, 24));
  Linear fc2 = register_module("fc2", Linear(24, 8));
};

// Takes one of two branches; a third one is never used.
struct Branches : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x, int64_t branch) {
    return out((branch == 0 ? left : right)(in(x).relu()).relu());
  }
  Linear in = register_module("in", Linear(16, 12));
  Linear left = register_module("left", Linear(12, 12));
  Linear right = register_module("right", Linear(12, 12));
  Linear never = register_module("never", Linear(12, 12));
  Linear out = register_module("out", Linear(12, 8));
};

// The second output need not be part of the loss.
struct TwoOutputs : torch::nn::Module {
  std::pair<at::Tensor, at::Tensor> forward(const at::Tensor& x) {
    const at::Tensor hidden = in(x).relu();
    at::Tensor one = first(hidden), two = second(hidden);
    return {one, two};
  }
  Linear in = register_module("in", Linear(16, 12));
  Linear first = register_module("first", Linear(12, 8));
  Linear second = register_module("second", Linear(12, 8));
};

// Its buffers change in every forward.
struct Normed : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) { return out(norm(in(x)).relu()); }
  Linear in = register_module("in", Linear(16, 12));
  torch::nn::BatchNorm1d norm = register_module("norm", torch::nn::BatchNorm1d(5));
  Linear out = register_module("out", Linear(12, 8));
};

// A convolution whose buffers change in every forward; it sees x as five channels of 4 x 4.
struct Cnn : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x);
  torch::nn::Conv2d conv = register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(5, 8, 3).padding(1)));
  torch::nn::BatchNorm2d norm = register_module("norm", torch::nn::BatchNorm2d(8));
  Linear out = register_module("out", Linear(32, 40));
};

// A language model whose last layer shares the embedding's weight: one parameter with two names.
struct Tied : torch::nn::Module {
  static constexpr int64_t kVocabulary = 64;
  // tokens: [batch, length]. Returns [batch, length, kVocabulary].
  at::Tensor forward(const at::Tensor& tokens);
  torch::nn::Embedding embedding = register_module("embedding", torch::nn::Embedding(kVocabulary, 16));
  Linear hidden = register_module("hidden", Linear(16, 16));
  at::Tensor tied = register_parameter("tied", embedding->weight);
};

// Sets all parameters to values that are equal in both languages.
void FillParameters(torch::nn::Module& module);

// CRC-32 of the bytes of all parameters and buffers.
uint32_t Checksum(const torch::nn::Module& module);

// Inputs and targets of a rank's batch: [64, 5, 16] and [64, 5, 8].
std::pair<at::Tensor, at::Tensor> FloatBatch(int64_t number);

// Tokens and their next tokens: [4, length] each, below `vocabulary`.
std::pair<at::Tensor, at::Tensor> TokenBatch(int64_t number, int64_t length, int64_t vocabulary);

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_WORKER_RUNTIME_PARITY_MODELS_H_
