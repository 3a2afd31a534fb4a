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

// Parameters, buffers (one an integer scalar), a tied pair, nested names, random numbers in training. Its twin in
// Python is Net of python_twin.py.
class SampleNet : public torch::nn::Module {
 public:
  SampleNet();
  at::Tensor forward(const at::Tensor& ids);

 private:
  torch::nn::Embedding wte_{nullptr};
  torch::nn::Sequential blocks_{nullptr};
  at::Tensor head_;  // the same as wte's weight
};

// Each parameter once: LibTorch's parameters() gives a tied one once for each of its names, and an optimizer would then
// take two steps with it.
std::vector<at::Tensor> UniqueParameters(const torch::nn::Module& module);

// One training step on a batch that follows from `step`.
void TrainStep(SampleNet& net, torch::optim::Optimizer& optimizer, int64_t step);

// All values of parameters and buffers, to be compared bit for bit.
std::string Bits(const torch::nn::Module& module);

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_WORKER_RUNTIME_CHECKPOINT_SAMPLE_NET_H_
