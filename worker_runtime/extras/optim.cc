#include "worker_runtime/extras/optim.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_addcdiv.h>
#include <ATen/ops/_foreach_addcmul.h>
#include <ATen/ops/_foreach_div.h>
#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/_foreach_maximum.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_sqrt.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>
#include <torch/optim/optimizer.h>

#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "base/mutex.h"
#include "worker_runtime/base/parameters.h"

namespace ddprun {

struct AdamW::Batch {
  std::vector<at::Tensor> parameters;
  std::vector<at::Tensor> gradients;
  std::vector<at::Tensor> exp_avgs;
  std::vector<at::Tensor> exp_avg_sqs;
  std::vector<at::Tensor> max_exp_avg_sqs;  // empty without amsgrad
  std::vector<int64_t> steps;               // including the current one
};

namespace {

using torch::optim::AdamWOptions;
using torch::optim::AdamWParamState;

// Computed in doubles, as in Python; pow(x, 0.5) and sqrt(x) are not always the same number.
double BiasCorrection1(const AdamWOptions& options, int64_t step) {
  return 1 - std::pow(std::get<0>(options.betas()), static_cast<double>(step));
}
double RootOfBiasCorrection2(const AdamWOptions& options, int64_t step) {
  return std::pow(1 - std::pow(std::get<1>(options.betas()), static_cast<double>(step)), 0.5);
}

// Throws c10::ValueError if a parameter is in `groups` more than once, within a group or in two groups.
void CheckEachOnce(const std::vector<torch::optim::OptimizerParamGroup>& groups) {
  std::unordered_map<const void*, size_t> seen;
  size_t index = 0;
  for (const torch::optim::OptimizerParamGroup& group : groups) {
    for (const at::Tensor& parameter : group.params()) {
      const auto [first, is_new] = seen.emplace(parameter.unsafeGetTensorImpl(), index);
      TORCH_CHECK_VALUE(is_new, "AdamW: parameters ", first->second, " and ", index, " are the same tensor, of shape ",
                        parameter.sizes(), ", and would be stepped twice; pass each parameter once (tied weights: ",
                        "ddprun::Parameters(module) instead of module->parameters())");
      ++index;
    }
  }
}

template <typename Batch>
void StepLoop(const Batch& batch, const AdamWOptions& options) {
  const auto [beta1, beta2] = options.betas();
  for (size_t i = 0; i < batch.parameters.size(); ++i) {
    at::Tensor parameter = batch.parameters[i];
    const at::Tensor& gradient = batch.gradients[i];
    at::Tensor exp_avg = batch.exp_avgs[i];
    at::Tensor exp_avg_sq = batch.exp_avg_sqs[i];
    if (options.weight_decay() != 0) parameter.mul_(1 - options.lr() * options.weight_decay());
    exp_avg.lerp_(gradient, 1 - beta1);
    exp_avg_sq.mul_(beta2).addcmul_(gradient, gradient, 1 - beta2);
    if (options.amsgrad()) {
      at::Tensor largest = batch.max_exp_avg_sqs[i];
      at::maximum_out(largest, largest, exp_avg_sq);
      exp_avg_sq = largest;
    }
    const at::Tensor denominator =
        exp_avg_sq.sqrt().div_(RootOfBiasCorrection2(options, batch.steps[i])).add_(options.eps());
    parameter.addcdiv_(exp_avg, denominator, -(options.lr() / BiasCorrection1(options, batch.steps[i])));
  }
}

template <typename Batch>
void StepForeach(const Batch& batch, const AdamWOptions& options) {
  const auto [beta1, beta2] = options.betas();
  if (options.weight_decay() != 0) at::_foreach_mul_(batch.parameters, 1 - options.lr() * options.weight_decay());
  at::_foreach_lerp_(batch.exp_avgs, batch.gradients, 1 - beta1);
  at::_foreach_mul_(batch.exp_avg_sqs, beta2);
  at::_foreach_addcmul_(batch.exp_avg_sqs, batch.gradients, batch.gradients, 1 - beta2);
  if (options.amsgrad()) at::_foreach_maximum_(batch.max_exp_avg_sqs, batch.exp_avg_sqs);

  std::vector<at::Scalar> roots, step_sizes;
  for (int64_t step : batch.steps) {
    roots.emplace_back(RootOfBiasCorrection2(options, step));
    step_sizes.emplace_back(-(options.lr() / BiasCorrection1(options, step)));
  }
  const std::vector<at::Tensor> denominators =
      at::_foreach_sqrt(options.amsgrad() ? batch.max_exp_avg_sqs : batch.exp_avg_sqs);
  at::_foreach_div_(denominators, roots);
  at::_foreach_add_(denominators, options.eps());
  at::_foreach_addcdiv_(batch.parameters, batch.exp_avgs, denominators, step_sizes);
}

struct Schedulers {
  Mutex mutex;
  std::map<const LambdaLR*, const torch::optim::Optimizer*> alive ABSL_GUARDED_BY(mutex);
};

Schedulers& TheSchedulers() {
  static auto* const schedulers = new Schedulers;
  return *schedulers;
}

std::vector<double> LearningRatesOf(const torch::optim::Optimizer& optimizer) {
  std::vector<double> rates;
  for (const torch::optim::OptimizerParamGroup& group : optimizer.param_groups()) {
    rates.push_back(group.options().get_lr());
  }
  return rates;
}

// `decay` returns the factor after `done` of the `all` steps that follow the warm-up, 0 <= done < all.
std::function<double(int64_t)> WithWarmup(int64_t warmup_steps, int64_t total_steps, double min_factor,
                                          double (*decay)(double done, double all)) {
  return [=](int64_t step) {
    if (step < warmup_steps) return static_cast<double>(step) / static_cast<double>(warmup_steps);
    const double factor = step >= total_steps ? 0
                                              : decay(static_cast<double>(step - warmup_steps),
                                                      static_cast<double>(total_steps - warmup_steps));
    return min_factor == 0 ? factor : min_factor + (1 - min_factor) * factor;
  };
}

}  // namespace

AdamW::AdamW(std::vector<at::Tensor> parameters, AdamWOptions defaults, AdamWKernel kernel)
    : torch::optim::AdamW(std::move(parameters), std::move(defaults)), kernel_(kernel) {
  CheckEachOnce(param_groups());
}

AdamW::AdamW(const std::vector<torch::optim::OptimizerParamGroup>& groups, AdamWOptions defaults, AdamWKernel kernel)
    : torch::optim::AdamW(groups, std::move(defaults)), kernel_(kernel) {
  CheckEachOnce(param_groups());
}

void AdamW::add_param_group(const torch::optim::OptimizerParamGroup& group) {
  std::vector<torch::optim::OptimizerParamGroup> groups = param_groups();
  groups.push_back(group);
  CheckEachOnce(groups);
  torch::optim::AdamW::add_param_group(group);
}

at::Tensor AdamW::step(LossClosure closure) {
  at::NoGradGuard no_grad;
  at::Tensor loss;
  if (closure != nullptr) {
    at::AutoGradMode enable_grad(true);
    loss = closure();
  }
  StepGroups(/*grad_scale=*/nullptr);
  return loss;
}

void AdamW::StepWithScaledGradients(const at::Tensor& grad_scale) {
  at::NoGradGuard no_grad;
  TORCH_CHECK(kernel_ == AdamWKernel::kFused, "AdamW: only the fused kernel divides gradients by their scale");
  StepGroups(&grad_scale);
}

void AdamW::StepGroups(const at::Tensor* grad_scale) {
  for (const torch::optim::OptimizerParamGroup& group : param_groups()) {
    const auto& options = static_cast<const AdamWOptions&>(group.options());
    for (const Batch& batch : Collect(group, options.amsgrad())) {
      switch (kernel_) {
        case AdamWKernel::kLoop: StepLoop(batch, options); break;
        case AdamWKernel::kForeach: StepForeach(batch, options); break;
        case AdamWKernel::kFused: StepFused(batch, options, grad_scale); break;
      }
    }
  }
}

std::vector<AdamW::Batch> AdamW::Collect(const torch::optim::OptimizerParamGroup& group, bool amsgrad) {
  std::vector<Batch> batches;
  for (const at::Tensor& parameter : group.params()) {
    const at::Tensor& gradient = parameter.grad();
    if (!gradient.defined()) continue;
    TORCH_CHECK(!gradient.is_sparse(), "AdamW does not support sparse gradients; use Embedding with sparse(false)");
    AdamWParamState& state = StateFor(parameter, amsgrad);
    state.step(state.step() + 1);

    Batch* batch = nullptr;
    for (Batch& other : batches) {
      const at::Tensor& like = other.parameters.front();
      if (like.device() == parameter.device() && like.scalar_type() == parameter.scalar_type()) batch = &other;
    }
    if (batch == nullptr) batch = &batches.emplace_back();
    batch->parameters.push_back(parameter);
    batch->gradients.push_back(gradient);
    batch->exp_avgs.push_back(state.exp_avg());
    batch->exp_avg_sqs.push_back(state.exp_avg_sq());
    if (amsgrad) batch->max_exp_avg_sqs.push_back(state.max_exp_avg_sq());
    batch->steps.push_back(state.step());
  }
  return batches;
}

void AdamW::StepFused(const Batch& batch, const AdamWOptions& options, const at::Tensor* grad_scale) {
  std::vector<at::Tensor> steps;
  steps.reserve(batch.parameters.size());
  std::vector<at::Tensor> to_increment;
  for (size_t i = 0; i < batch.parameters.size(); ++i) {
    const at::Tensor& parameter = batch.parameters[i];
    StepTensor& step = step_tensors_[parameter.unsafeGetTensorImpl()];
    if (!step.tensor.defined() || step.tensor.device() != parameter.device()) {
      step.tensor = at::empty({}, parameter.options().dtype(at::kFloat).requires_grad(false));
      step.holds = -1;
    }
    // On a GPU, one call for all is cheaper than a small kernel for each.
    if (step.tensor.is_cpu()) {
      *step.tensor.data_ptr<float>() = static_cast<float>(batch.steps[i]);
    } else if (step.holds == batch.steps[i] - 1) {
      to_increment.push_back(step.tensor);
    } else if (step.holds != batch.steps[i]) {
      step.tensor.fill_(static_cast<double>(batch.steps[i]));
    }
    step.holds = batch.steps[i];
    steps.push_back(step.tensor);
  }
  if (!to_increment.empty()) at::_foreach_add_(to_increment, 1);
  std::optional<at::Tensor> scale;
  if (grad_scale != nullptr) scale = grad_scale->to(batch.parameters.front().device(), /*non_blocking=*/true);
  const auto [beta1, beta2] = options.betas();
  at::_fused_adamw_(batch.parameters, batch.gradients, batch.exp_avgs, batch.exp_avg_sqs, batch.max_exp_avg_sqs, steps,
                    options.lr(), beta1, beta2, options.weight_decay(), options.eps(), options.amsgrad(),
                    /*maximize=*/false, scale);
}

void AdamW::zero_grad(bool set_to_none) {
  for (torch::optim::OptimizerParamGroup& group : param_groups()) ZeroGradients(group.params(), set_to_none);
}

AdamWParamState& AdamW::StateOf(const at::Tensor& parameter) {
  for (const torch::optim::OptimizerParamGroup& group : param_groups()) {
    for (const at::Tensor& own : group.params()) {
      if (own.is_same(parameter)) {
        return StateFor(parameter, static_cast<const AdamWOptions&>(group.options()).amsgrad());
      }
    }
  }
  TORCH_CHECK(false, "not a parameter of this AdamW");
}

AdamWParamState& AdamW::StateFor(const at::Tensor& parameter, bool amsgrad) {
  std::unique_ptr<torch::optim::OptimizerParamState>& slot = state_[parameter.unsafeGetTensorImpl()];
  if (slot == nullptr) slot = std::make_unique<AdamWParamState>();
  auto& state = static_cast<AdamWParamState&>(*slot);
  // Detached, as StateOf may be called without a NoGradGuard.
  const auto zeros = [&parameter] { return at::zeros_like(parameter, at::MemoryFormat::Preserve).detach(); };
  if (!state.exp_avg().defined()) state.exp_avg(zeros());
  if (!state.exp_avg_sq().defined()) state.exp_avg_sq(zeros());
  if (amsgrad && !state.max_exp_avg_sq().defined()) state.max_exp_avg_sq(zeros());
  return state;
}

LambdaLR::LambdaLR(torch::optim::Optimizer& optimizer, std::function<double(int64_t)> factor)
    : LRScheduler(optimizer), base_lrs_(LearningRatesOf(optimizer)), factor_(std::move(factor)) {
  const std::vector<double> rates = LearningRates(0);
  for (size_t i = 0; i < rates.size(); ++i) optimizer.param_groups()[i].options().set_lr(rates[i]);
  MutexLock lock(&TheSchedulers().mutex);
  TheSchedulers().alive[this] = &optimizer;
}

LambdaLR::~LambdaLR() {
  MutexLock lock(&TheSchedulers().mutex);
  TheSchedulers().alive.erase(this);
}

std::vector<const torch::optim::LRScheduler*> LambdaLR::Of(const torch::optim::Optimizer& optimizer) {
  std::vector<const torch::optim::LRScheduler*> found;
  MutexLock lock(&TheSchedulers().mutex);
  for (const auto& [scheduler, of] : TheSchedulers().alive) {
    if (of == &optimizer) found.push_back(scheduler);
  }
  return found;
}

// LRScheduler::step() increments step_count_ after this call.
std::vector<double> LambdaLR::get_lrs() { return LearningRates(static_cast<int64_t>(step_count_) + 1); }

std::vector<double> LambdaLR::LearningRates(int64_t step) const {
  const double factor = factor_(step);
  std::vector<double> rates = base_lrs_;
  for (double& rate : rates) rate *= factor;
  return rates;
}

std::function<double(int64_t)> CosineWithWarmup(int64_t warmup_steps, int64_t total_steps, double min_factor) {
  return WithWarmup(warmup_steps, total_steps, min_factor,
                    [](double done, double all) { return 0.5 * (1.0 + std::cos(M_PI * (done / all))); });
}

std::function<double(int64_t)> LinearWithWarmup(int64_t warmup_steps, int64_t total_steps, double min_factor) {
  return WithWarmup(warmup_steps, total_steps, min_factor, [](double done, double all) { return (all - done) / all; });
}

}  // namespace ddprun
