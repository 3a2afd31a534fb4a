#ifndef DDPRUN_TESTS_SIMGPU_FEATURES_NET_H_
#define DDPRUN_TESTS_SIMGPU_FEATURES_NET_H_

#include <ATen/Functions.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <memory>

#include "worker_runtime/extras/nn.h"
#include "worker_runtime/worker.h"

namespace ddprun::testing {

struct NetOptions {
  bool batch_norm = false;
  std::shared_ptr<ProcessGroup> sync_batch_norm;  // nullptr: none
  bool use_all_parameters = true;                 // false: two never get a gradient
};

// [batch, 8] -> [batch, 4].
struct NetImpl : torch::nn::Module {
  explicit NetImpl(NetOptions net_options = {}) : options(std::move(net_options)) {
    first = register_module("first", torch::nn::Linear(8, 32));
    if (options.sync_batch_norm != nullptr) {
      sync_norm = register_module("sync_norm", SyncBatchNorm(torch::nn::BatchNormOptions(32), options.sync_batch_norm));
    } else if (options.batch_norm) {
      norm = register_module("norm", torch::nn::BatchNorm1d(32));
    }
    second = register_module("second", torch::nn::Linear(32, 32));
    unused = register_module("unused", torch::nn::Linear(4, 4));
    last = register_module("last", torch::nn::Linear(32, 4));
  }

  at::Tensor forward(const at::Tensor& x, bool use_second = true) {
    at::Tensor hidden = first->forward(x);
    if (sync_norm) hidden = sync_norm->forward(hidden);
    if (norm) hidden = norm->forward(hidden);
    hidden = at::relu(hidden);
    if (use_second) hidden = at::relu(second->forward(hidden));
    if (options.use_all_parameters) hidden = hidden + unused->weight.sum() + unused->bias.sum();
    return last->forward(hidden);
  }

  const NetOptions options;
  torch::nn::Linear first{nullptr}, second{nullptr}, last{nullptr}, unused{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  SyncBatchNorm sync_norm{nullptr};
};
TORCH_MODULE(Net);

// Sum of the absolute values of all parameters and buffers.
double Sum(const torch::nn::Module& module);

// Random numbers that depend on the rank and the step alone, on the worker's device.
at::Tensor Data(const Worker& worker, int step, int rows, int columns);

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_SIMGPU_FEATURES_NET_H_
