#include "worker_runtime/extras/nn.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/custom_function.h>

#include <map>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "worker_runtime/base/torch_try.h"

namespace ddprun {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct GroupHolder : torch::CustomClassHolder {
  explicit GroupHolder(std::shared_ptr<ProcessGroup> of) : group(std::move(of)) {}
  std::shared_ptr<ProcessGroup> group;
};

// Returns all dimensions except that of the channels.
std::vector<int64_t> SampleDims(const at::Tensor& input) {
  std::vector<int64_t> dims = {0};
  for (int64_t dim = 2; dim < input.dim(); ++dim) dims.push_back(dim);
  return dims;
}

// Shapes one value per channel so that it broadcasts against `input`.
at::Tensor PerChannel(const at::Tensor& values, const at::Tensor& input) {
  std::vector<int64_t> shape(input.dim(), 1);
  shape[1] = -1;
  return values.view(shape);
}

at::Tensor ToAccumulate(const at::Tensor& tensor) {
  const bool half = tensor.scalar_type() == at::kHalf || tensor.scalar_type() == at::kBFloat16;
  return half ? tensor.to(at::kFloat) : tensor;
}

// Statistics over all ranks.
struct Statistics {
  at::Tensor count;    // [1]
  at::Tensor mean;     // [channels]
  at::Tensor squares;  // [channels]: sum of the squares of the distances to the mean
};

// Each rank sends its own mean and squares, which avoids the loss of digits of sums of x and of x * x (Chan et al.,
// Updating Formulae and a Pairwise Algorithm for Computing Sample Variances, 1979).
Statistics Gather(const at::Tensor& x, ProcessGroup& group) {
  const int64_t channels = x.size(1);
  const at::Tensor count = at::full({1}, x.numel() / channels, x.options());
  at::Tensor mean = at::zeros({channels}, x.options()), squares = mean;
  if (x.numel() > 0) {
    mean = x.mean(SampleDims(x));
    squares = (x - PerChannel(mean, x)).square().sum(SampleDims(x));
  }
  absl::StatusOr<std::vector<at::Tensor>> gathered = group.AllGather(at::cat({count, mean, squares}));
  ThrowIfError(gathered.status());
  const at::Tensor all = at::stack(*gathered);  // [ranks, 1 + 2 channels]
  const at::Tensor counts = all.narrow(1, 0, 1), means = all.narrow(1, 1, channels);
  Statistics statistics;
  statistics.count = counts.sum(0);
  statistics.mean = (counts * means).sum(0) / statistics.count;
  statistics.squares = (all.narrow(1, 1 + channels, channels) + counts * (means - statistics.mean).square()).sum(0);
  return statistics;
}

class Normalize : public torch::autograd::Function<Normalize> {
 public:
  // An at::Tensor argument of an autograd function must be defined; an optional one may be undefined.
  using MaybeTensor = std::optional<at::Tensor>;

  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, const MaybeTensor& maybe_weight,
                            const MaybeTensor& bias, const MaybeTensor& running_mean, const MaybeTensor& running_var,
                            double momentum, double eps, const std::shared_ptr<ProcessGroup>& group) {
    const at::Tensor weight = maybe_weight.value_or(at::Tensor());
    const at::Tensor x = ToAccumulate(input);
    const Statistics statistics = Gather(x, *group);
    const at::Tensor invstd = (statistics.squares / statistics.count + eps).rsqrt();
    if (running_mean.has_value() && running_mean->defined()) {
      running_mean->mul_(1 - momentum).add_(statistics.mean, momentum);
      running_var->mul_(1 - momentum).add_(statistics.squares / (statistics.count - 1), momentum);
    }
    context->save_for_backward({input, weight, statistics.mean, invstd, statistics.count});
    context->saved_data["group"] = c10::IValue::make_capsule(c10::make_intrusive<GroupHolder>(group));
    at::Tensor output = (x - PerChannel(statistics.mean, x)) * PerChannel(invstd, x);
    if (weight.defined()) output = output * PerChannel(weight, x) + PerChannel(*bias, x);
    return output.to(input.scalar_type());
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &input = saved[0], &weight = saved[1], &mean = saved[2], &invstd = saved[3], &count = saved[4];
    const at::Tensor x = ToAccumulate(input), dy = ToAccumulate(gradients[0]);
    const at::Tensor normalized = (x - PerChannel(mean, x)) * PerChannel(invstd, x);
    const at::Tensor sum = dy.sum(SampleDims(x)), product = (dy * normalized).sum(SampleDims(x));
    variable_list result(8);
    if (weight.defined()) {
      result[1] = product.to(weight.scalar_type());
      result[2] = sum.to(weight.scalar_type());
    }
    if (!context->needs_input_grad(0)) return result;
    const at::Tensor sums = at::stack({sum, product});
    const auto holder = c10::static_intrusive_pointer_cast<GroupHolder>(context->saved_data["group"].toCapsule());
    ThrowIfError(holder->group->AllReduce(sums));
    const at::Tensor means = sums / count;
    at::Tensor dx = (dy - PerChannel(means[0], x) - normalized * PerChannel(means[1], x)) * PerChannel(invstd, x);
    if (weight.defined()) dx = dx * PerChannel(weight, x);
    result[0] = dx.to(input.scalar_type());
    return result;
  }
};

}  // namespace

SyncBatchNormImpl::SyncBatchNormImpl(const torch::nn::BatchNormOptions& options, std::shared_ptr<ProcessGroup> group)
    : SyncBatchNormImpl(options, [group = std::move(group)] { return group; }) {}

SyncBatchNormImpl::SyncBatchNormImpl(const torch::nn::BatchNormOptions& options,
                                     std::function<std::shared_ptr<ProcessGroup>()> group)
    : NormImplBase(options), group_(std::move(group)) {}

void SyncBatchNormImpl::_check_input_dim(const at::Tensor& input) {
  TORCH_CHECK_VALUE(input.dim() >= 2 && input.size(1) == options.num_features(),
                    "SyncBatchNorm: expected an input of shape [samples, ", options.num_features(), ", ...], got ",
                    input.sizes());
}

at::Tensor SyncBatchNormImpl::forward(const at::Tensor& input) {
  _check_input_dim(input);
  const bool tracks = is_training() && options.track_running_stats();
  double momentum = options.momentum().value_or(0);
  if (tracks) {
    num_batches_tracked += 1;
    // Cumulative average.
    if (!options.momentum().has_value()) momentum = 1.0 / num_batches_tracked.item<double>();
  }
  const std::shared_ptr<ProcessGroup> group = is_training() ? group_() : nullptr;
  TORCH_CHECK_VALUE(!is_training() || group != nullptr,
                    "SyncBatchNorm has no process group: with ddprun::Training, make "
                    "it with a function that returns worker.group()");
  if (!is_training() || group->size() == 1) {
    return at::batch_norm(input, weight, bias, running_mean, running_var, is_training() || !running_mean.defined(),
                          momentum, options.eps(), /*cudnn_enabled=*/true);
  }
  using MaybeTensor = Normalize::MaybeTensor;
  return Normalize::apply(input, MaybeTensor(weight), MaybeTensor(bias), MaybeTensor(running_mean),
                          MaybeTensor(running_var), momentum, options.eps(), group);
}

at::Tensor LinearImpl::forward(const at::Tensor& input) { return at::linear(input, weight, bias); }

// The inherited function would create a torch::nn::LinearImpl.
std::shared_ptr<torch::nn::Module> LinearImpl::clone(const std::optional<torch::Device>& device) const {
  at::NoGradGuard no_grad;
  auto copy = std::make_shared<LinearImpl>(options);
  copy->to(weight.device(), weight.scalar_type());
  if (device.has_value()) copy->to(*device);
  for (const auto& parameter : named_parameters()) {
    at::Tensor target = *copy->named_parameters().find(parameter.key());
    target.copy_(parameter.value());
    target.set_requires_grad(parameter.value().requires_grad());
  }
  copy->train(is_training());
  return copy;
}

at::Tensor ClipGradNorm(const std::vector<at::Tensor>& parameters, double max_norm, double norm_type) {
  const at::NoGradGuard no_grad;
  std::unordered_set<const void*> seen;
  std::map<std::string, std::vector<at::Tensor>> gradients;  // the key is the device
  at::Device first(at::kCPU);
  for (const at::Tensor& parameter : parameters) {
    const at::Tensor& gradient = parameter.grad();
    if (!gradient.defined() || !seen.insert(parameter.unsafeGetTensorImpl()).second) continue;
    if (gradients.empty()) first = gradient.device();
    gradients[gradient.device().str()].push_back(gradient);
  }
  if (gradients.empty()) return at::zeros({});
  std::vector<at::Tensor> norms;
  for (const auto& [device, tensors] : gradients) {
    for (const at::Tensor& norm : at::_foreach_norm(tensors, norm_type)) norms.push_back(norm.to(first));
  }
  const at::Tensor total = at::linalg_vector_norm(at::stack(norms), norm_type);
  // Clamped on the device, because the host would have to wait for it.
  const at::Tensor factor = ((total + 1e-6).reciprocal() * max_norm).clamp_max(1.0);
  for (const auto& [device, tensors] : gradients) at::_foreach_mul_(tensors, factor.to(tensors.front().device()));
  return total;
}

}  // namespace ddprun
