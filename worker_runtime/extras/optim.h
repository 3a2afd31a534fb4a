#ifndef DDPRUN_WORKER_RUNTIME_EXTRAS_OPTIM_H_
#define DDPRUN_WORKER_RUNTIME_EXTRAS_OPTIM_H_

#include <ATen/core/Tensor.h>
#include <torch/optim/adamw.h>
#include <torch/optim/schedulers/lr_scheduler.h>

#include <cstdint>
#include <functional>
#include <unordered_map>
#include <vector>

namespace ddprun {

// Implementation of a step. Each gives the same bits as the Python optimizer with the named argument. On a CPU, loop
// and foreach are equal; fused rounds differently.
enum class AdamWKernel {
  kLoop,     // foreach=False: one tensor after the other; Python's default on a CPU
  kForeach,  // foreach=True: one call for all tensors; Python's default on a GPU
  kFused,    // fused=True: one pass over the memory; the fastest, even on a CPU
};

// AdamW (Loshchilov & Hutter, Decoupled Weight Decay Regularization, 2019), bit for bit equal to Python's
// torch.optim.AdamW. The C++ frontend's torch::optim::AdamW, its base class, updates the first moment with two
// roundings instead of one, so it differs from Python from the second step on; it also has no fused kernel.
//
// Options, parameter groups, state, schedulers and archives are those of torch::optim::AdamW:
// torch::optim::AdamWOptions per group, whose lr may be changed between steps, and torch::optim::AdamWParamState per
// parameter.
//
//   ddprun::AdamW optimizer({{decay, Options(0.1)}, {no_decay, Options(0.0)}}, torch::optim::AdamWOptions(3e-4));
//
// Parameters must be floating-point and dense, on any device, each given once: tied weights, which module.parameters()
// lists twice, would be stepped twice, so pass ddprun::Parameters(module). A step skips parameters without a gradient.
// Throws c10::Error, like LibTorch's optimizers; c10::ValueError for a parameter that is given twice.
// Thread-compatible.
class AdamW : public torch::optim::AdamW {
 public:
  explicit AdamW(std::vector<at::Tensor> parameters, torch::optim::AdamWOptions defaults = {},
                 AdamWKernel kernel = AdamWKernel::kFused);

  // A group without its own options uses the defaults.
  explicit AdamW(const std::vector<torch::optim::OptimizerParamGroup>& groups, torch::optim::AdamWOptions defaults = {},
                 AdamWKernel kernel = AdamWKernel::kFused);

  // Like torch::optim::Optimizer's, but rejects parameters that this optimizer already has.
  void add_param_group(const torch::optim::OptimizerParamGroup& group);

  // Takes one step with the current gradients. `closure`, if given, is called first, with gradients enabled, and its
  // loss is returned.
  at::Tensor step(LossClosure closure = nullptr) override;

  // Used by GradScaler; kFused only. Takes one step with the gradients divided by `grad_scale` (float, no dimensions),
  // in the same pass over the memory; the gradients themselves are divided as well.
  void StepWithScaledGradients(const at::Tensor& grad_scale);

  // Like Python's zero_grad. Supports gradients that are bucket views (gradient_as_bucket_view), for which
  // torch::optim::Optimizer::zero_grad throws.
  void zero_grad(bool set_to_none = true);

  // Returns the state of a parameter, created with zeros before its first step: number of steps done, and moments of
  // the parameter's shape, dtype and device. May be modified, for example to load a checkpoint.
  torch::optim::AdamWParamState& StateOf(const at::Tensor& parameter);

  AdamWKernel kernel() const { return kernel_; }

 private:
  // Tensors of one device and dtype that one step updates together.
  struct Batch;
  // Number of steps as a float tensor on the parameter's device, as the fused kernel requires.
  struct StepTensor {
    at::Tensor tensor;
    int64_t holds = -1;
  };

  torch::optim::AdamWParamState& StateFor(const at::Tensor& parameter, bool amsgrad);
  std::vector<Batch> Collect(const torch::optim::OptimizerParamGroup& group, bool amsgrad);
  void StepGroups(const at::Tensor* grad_scale);
  void StepFused(const Batch& batch, const torch::optim::AdamWOptions& options, const at::Tensor* grad_scale);

  const AdamWKernel kernel_;
  std::unordered_map<const void*, StepTensor> step_tensors_;
};

// Python's torch.optim.lr_scheduler.LambdaLR, which LibTorch lacks: the learning rate of each parameter group is its
// rate when the scheduler was created, times factor(number of step() calls so far). As in Python, the constructor
// already sets the rates for 0 steps.
//
//   ddprun::LambdaLR scheduler(optimizer, ddprun::CosineWithWarmup(100, steps));
//   ...
//   optimizer.step();
//   scheduler.step();
//
// Create it before the state is resumed (TrainingState::AddScheduler): a checkpoint contains the number of steps but
// not the initial rates. The optimizer must outlive it. Not thread-safe, except for Of.
class LambdaLR : public torch::optim::LRScheduler {
 public:
  LambdaLR(torch::optim::Optimizer& optimizer, std::function<double(int64_t step)> factor);
  ~LambdaLR() override;
  LambdaLR(const LambdaLR&) = delete;
  LambdaLR& operator=(const LambdaLR&) = delete;

  // The objects of this optimizer that exist: Training finds with it those that were not added.
  static std::vector<const torch::optim::LRScheduler*> Of(const torch::optim::Optimizer& optimizer);

  // Rates as of the last step(), one per parameter group.
  std::vector<double> get_last_lr() const { return get_current_lrs(); }

 protected:
  std::vector<double> get_lrs() override;

 private:
  std::vector<double> LearningRates(int64_t step) const;

  const std::vector<double> base_lrs_;
  const std::function<double(int64_t)> factor_;
};

// Returns a factor that rises from 0 to 1 over `warmup_steps` and falls to `min_factor` along half a cosine until
// `total_steps`, where it stays. With min_factor 0 it is Hugging Face Transformers' get_cosine_schedule_with_warmup.
std::function<double(int64_t step)> CosineWithWarmup(int64_t warmup_steps, int64_t total_steps, double min_factor = 0);

// Like CosineWithWarmup with a straight line instead of the cosine: get_linear_schedule_with_warmup.
std::function<double(int64_t step)> LinearWithWarmup(int64_t warmup_steps, int64_t total_steps, double min_factor = 0);

// Number of steps that the scheduler has made. LibTorch counts them in a protected member and has no state_dict.
inline unsigned& StepsOf(torch::optim::LRScheduler& scheduler) {
  struct Open : torch::optim::LRScheduler {
    static unsigned& Steps(torch::optim::LRScheduler& of) { return of.*(&Open::step_count_); }
  };
  return Open::Steps(scheduler);
}

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_EXTRAS_OPTIM_H_
