#ifndef DDPRUN_WORKER_RUNTIME_EXTRAS_NN_LINEAR_H_
#define DDPRUN_WORKER_RUNTIME_EXTRAS_NN_LINEAR_H_

#include <ATen/core/Tensor.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <memory>
#include <optional>

namespace ddprun {

// torch::nn::Linear with the kernel of Python's nn.Linear. For inputs with three or more dimensions, the C++ frontend
// multiplies by the transposed weight and then adds the bias, which rounds differently from Python's at::linear; with
// two dimensions both are equal. Parameter names and initialization are those of torch::nn::Linear.
//
// Thread-compatible, like every torch::nn::Module.
class LinearImpl : public torch::nn::LinearImpl {
 public:
  using torch::nn::LinearImpl::LinearImpl;

  // input: [..., in_features], of the weight's dtype. Returns [..., out_features].
  at::Tensor forward(const at::Tensor& input);

  std::shared_ptr<torch::nn::Module> clone(const std::optional<torch::Device>& device = std::nullopt) const override;
};
TORCH_MODULE(Linear);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_EXTRAS_NN_LINEAR_H_
