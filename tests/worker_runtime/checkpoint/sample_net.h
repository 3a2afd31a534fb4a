#ifndef DDPRUN_TESTS_WORKER_RUNTIME_CHECKPOINT_SAMPLE_NET_H_
#define DDPRUN_TESTS_WORKER_RUNTIME_CHECKPOINT_SAMPLE_NET_H_

#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/optimizer.h>

#include <cstdint>
#include <string>
#include <vector>

namespace ddprun::testing {

// Has parameters, buffers (one is an integer scalar), a tied pair, nested names, and dropout. Its twin is Net of
// python_twin.py.
class SampleNet : public torch::nn::Module {
 public:
  SampleNet();
  at::Tensor forward(const at::Tensor& ids);

 private:
  torch::nn::Embedding wte_{nullptr};
  torch::nn::Sequential blocks_{nullptr};
  at::Tensor head_;  // wte's weight
};

// Returns each parameter once. LibTorch's parameters() repeats tied ones, which an optimizer would step twice.
std::vector<at::Tensor> UniqueParameters(const torch::nn::Module& module);

// Makes a training step on a batch that depends on `step` only.
void TrainStep(SampleNet& net, torch::optim::Optimizer& optimizer, int64_t step);

// All bits of parameters and buffers.
std::string Bits(const torch::nn::Module& module);

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_WORKER_RUNTIME_CHECKPOINT_SAMPLE_NET_H_
