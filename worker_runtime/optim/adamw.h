#ifndef DDPRUN_WORKER_RUNTIME_OPTIM_ADAMW_H_
#define DDPRUN_WORKER_RUNTIME_OPTIM_ADAMW_H_

#include <ATen/core/Tensor.h>
#include <torch/optim/adamw.h>

#include <cstdint>
#include <unordered_map>
#include <vector>

namespace ddprun {

// How a step is computed. Each gives the bits of the Python optimizer made with the argument named; loop and foreach are
// equal on a CPU, fused rounds differently.
enum class AdamWKernel {
  kLoop,     // foreach=False: one tensor after the other; what Python does by default on a CPU
  kForeach,  // foreach=True: one call for all tensors; what Python does by default on a GPU
  kFused,    // fused=True: one pass over the memory; the fastest, on a CPU too
};

// AdamW (Loshchilov & Hutter, Decoupled Weight Decay Regularization, 2019) with the bits of Python's torch.optim.AdamW.
// The C++ frontend's own, from which this is derived, blends the first moment in two roundings instead of one and so
// drifts apart from Python after the second step; it also has no fused kernel.
//
// Options, parameter groups, state, schedulers and archives are those of torch::optim::AdamW: per group
// torch::optim::AdamWOptions, whose lr may be changed between steps, and per parameter torch::optim::AdamWParamState.
//
//   ddprun::AdamW optimizer({{decay, Options(0.1)}, {no_decay, Options(0.0)}}, torch::optim::AdamWOptions(3e-4));
//
// Parameters: floating, dense, on any device; those without a gradient are left alone in a step. Throws c10::Error as
// LibTorch's optimizers do. Thread-compatible.
class AdamW : public torch::optim::AdamW {
 public:
  explicit AdamW(std::vector<at::Tensor> parameters, torch::optim::AdamWOptions defaults = {},
                 AdamWKernel kernel = AdamWKernel::kFused);

  // A group without options of its own takes the defaults.
  explicit AdamW(const std::vector<torch::optim::OptimizerParamGroup>& groups, torch::optim::AdamWOptions defaults = {},
                 AdamWKernel kernel = AdamWKernel::kFused);

  // One step with the gradients that are there. `closure`, if given, is called before, with gradients enabled; its loss
  // is returned.
  at::Tensor step(LossClosure closure = nullptr) override;

  // As in Python: also where gradients are views into buckets (gradient_as_bucket_view), for which
  // torch::optim::Optimizer::zero_grad throws.
  void zero_grad(bool set_to_none = true);

  // The state of one of the parameters, made of zeros if it has had no step yet: number of steps done, and moments of
  // the parameter's shape, dtype and device. May be written to, as when a checkpoint is loaded.
  torch::optim::AdamWParamState& StateOf(const at::Tensor& parameter);

  AdamWKernel kernel() const { return kernel_; }

 private:
  // The tensors of one device and dtype that one step works on.
  struct Batch;
  // The fused kernel wants the number of steps as a float tensor on the parameter's device.
  struct StepTensor {
    at::Tensor tensor;
    int64_t holds = -1;
  };

  torch::optim::AdamWParamState& StateFor(const at::Tensor& parameter, bool amsgrad);
  std::vector<Batch> Collect(const torch::optim::OptimizerParamGroup& group, bool amsgrad);
  void StepFused(const Batch& batch, const torch::optim::AdamWOptions& options);

  const AdamWKernel kernel_;
  std::unordered_map<const void*, StepTensor> step_tensors_;
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_OPTIM_ADAMW_H_
