#ifndef DDPRUN_WORKER_RUNTIME_DDP_MODULE_TENSORS_H_
#define DDPRUN_WORKER_RUNTIME_DDP_MODULE_TENSORS_H_

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "worker_runtime/ddp/model_description.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace ddprun {

// Parameters of a module that require a gradient, in the order of named_parameters(), which is Python's. A tensor with
// several names (tied weights) appears once, under its first name.
struct TrainedParameters {
  std::vector<at::Tensor> tensors;
  std::vector<std::string> names;
  std::vector<bool> sparse;  // true if it gets sparse gradients: the weight of an Embedding with sparse(true)
};

TrainedParameters CollectTrainedParameters(const torch::nn::Module& module);

// Returns all current buffers; modules may replace them.
std::vector<at::Tensor> CollectBuffers(const torch::nn::Module& module);

// Returns all parameters (frozen ones included), then buffers, without gradients.
std::vector<at::Tensor> CollectState(const torch::nn::Module& module, bool with_buffers);

// Describes parameters, then buffers, for the comparison between ranks.
ModelDescription DescribeModule(const torch::nn::Module& module, const DdpOptions& options);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_DDP_MODULE_TENSORS_H_
