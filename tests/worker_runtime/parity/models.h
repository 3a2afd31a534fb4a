#ifndef DDPRUN_TESTS_WORKER_RUNTIME_PARITY_MODELS_H_
#define DDPRUN_TESTS_WORKER_RUNTIME_PARITY_MODELS_H_

#include <ATen/core/Tensor.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>

#include <cstdint>
#include <utility>

#include "worker_runtime/nn/linear.h"

namespace ddprun::testing {

// Small models that twin.py has too. x: [batch, 5, 16]; outputs: [batch, 5, 8].

// Two linear layers.
struct Mlp : torch::nn::Module {
  Mlp();
  at::Tensor forward(const at::Tensor& x);

  Linear fc1{nullptr}, fc2{nullptr};
};

// One of two branches is taken; a third never is.
struct Branches : torch::nn::Module {
  Branches();
  at::Tensor forward(const at::Tensor& x, int64_t branch);

  Linear in{nullptr}, left{nullptr}, right{nullptr}, never{nullptr}, out{nullptr};
};

// The second output need not feed the loss.
struct TwoOutputs : torch::nn::Module {
  TwoOutputs();
  std::pair<at::Tensor, at::Tensor> forward(const at::Tensor& x);

  Linear in{nullptr}, first{nullptr}, second{nullptr};
};

// Buffers change in every forward.
struct Normed : torch::nn::Module {
  Normed();
  at::Tensor forward(const at::Tensor& x);

  Linear in{nullptr}, out{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
};

// A convolution whose buffers change in every forward; it sees x as five channels of 4 x 4.
struct Cnn : torch::nn::Module {
  Cnn();
  at::Tensor forward(const at::Tensor& x);

  torch::nn::Conv2d conv{nullptr};
  torch::nn::BatchNorm2d norm{nullptr};
  Linear out{nullptr};
};

// A language model whose embedding is its last layer too: one parameter with two names.
struct Tied : torch::nn::Module {
  explicit Tied(int64_t vocabulary);
  // tokens: [batch, length]. Returns [batch, length, vocabulary].
  at::Tensor forward(const at::Tensor& tokens);

  torch::nn::Embedding embedding{nullptr};
  Linear hidden{nullptr};
  at::Tensor tied;
};

// Sets all parameters to numbers that are the same in both languages.
void FillParameters(torch::nn::Module& module);

// CRC-32 of the bytes of all parameters and buffers.
uint32_t Checksum(const torch::nn::Module& module);

// The inputs and targets of one rank's batch of floats: [64, 5, 16] and [64, 5, 8].
std::pair<at::Tensor, at::Tensor> FloatBatch(int64_t number);

// Tokens and the ones that come next: [4, length] each, below `vocabulary`.
std::pair<at::Tensor, at::Tensor> TokenBatch(int64_t number, int64_t length, int64_t vocabulary);

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_WORKER_RUNTIME_PARITY_MODELS_H_
