#include "tests/simgpu/features/net.h"

#include <ATen/CPUGeneratorImpl.h>

namespace ddprun::testing {

double Sum(const torch::nn::Module& module) {
  double sum = 0;
  const auto add = [&sum](const at::Tensor& tensor) {
    sum += tensor.detach().cpu().to(at::kDouble).abs().sum().item<double>();
  };
  for (const at::Tensor& parameter : module.parameters()) add(parameter);
  for (const at::Tensor& buffer : module.buffers()) add(buffer);
  return sum;
}

at::Tensor Data(const Worker& worker, int step, int rows, int columns) {
  const at::Generator generator = at::detail::createCPUGenerator(1000 * worker.env().rank + step);
  return at::randn({rows, columns}, generator).to(worker.device());
}

}  // namespace ddprun::testing
