#ifndef DDPRUN_WORKER_RUNTIME_EXTRAS_NN_H_
#define DDPRUN_WORKER_RUNTIME_EXTRAS_NN_H_

#include <ATen/core/Tensor.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/options/batchnorm.h>
#include <torch/nn/pimpl.h>

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "worker_runtime/process_group/process_group.h"

namespace ddprun {

// Python's torch.nn.SyncBatchNorm: batch normalization (Ioffe & Szegedy, 2015) whose mean and variance are those of the
// batches of all ranks of a group, so that n ranks with small batches train like one process with the whole batch.
// Replaces torch::nn::BatchNorm1d, 2d and 3d, with the same options and names of parameters and buffers. Unlike
// Python's, it also works on a CPU.
//
//   norm = register_module("norm", ddprun::SyncBatchNorm(torch::nn::BatchNormOptions(64), worker.group()));
//
// With Training, whose group changes from round to round and does not exist yet when the model is made, give a function
// instead: [&worker] { return worker.group(); }.
//
// In training, forward gathers 2 x channels + 1 numbers from each rank and backward all-reduces 2 x channels: all ranks
// must make the same calls, each with any number of samples, zero included. The gradients of weight and bias are those
// of this rank's samples; DistributedDataParallel averages them. In evaluation, and with a group of one, it does not
// communicate and equals torch::nn::BatchNorm; in evaluation with track_running_stats(false), statistics are those of
// this rank.
//
// Forward and backward throw like LibTorch: run them inside ProcessGroup::Try. Threads: same rules as ProcessGroup.
class SyncBatchNormImpl : public torch::nn::NormImplBase<0, SyncBatchNormImpl, torch::nn::BatchNormOptions> {
 public:
  SyncBatchNormImpl(const torch::nn::BatchNormOptions& options, std::shared_ptr<ProcessGroup> group);
  // `group` returns the current group, and is called in each forward of training.
  SyncBatchNormImpl(const torch::nn::BatchNormOptions& options, std::function<std::shared_ptr<ProcessGroup>()> group);

  // input: [samples, num_features, ...], floating-point. Returns the same shape and dtype; half and bfloat16 are summed
  // in float.
  at::Tensor forward(const at::Tensor& input);

 protected:
  void _check_input_dim(const at::Tensor& input) override;

 private:
  std::function<std::shared_ptr<ProcessGroup>()> group_;
};
TORCH_MODULE(SyncBatchNorm);

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

// Python's torch.nn.utils.clip_grad_norm_, with the same bits: scales the gradients in place so that their norm, taken
// over all of them together, is at most `max_norm`, and returns the norm before scaling: a scalar on the device of the
// first gradient (zero on the CPU if there is none). Does not wait for a GPU. norm_type: p of the p-norm; infinity: the
// largest value.
//
//   at::Tensor norm = ddprun::ClipGradNorm(ddprun::Parameters(model), 1.0);
//
// The C++ frontend's torch::nn::utils::clip_grad_norm_ divides where Python multiplies by the reciprocal, and waits for
// a GPU to return a number.
//
// With DistributedDataParallel, call it after backward; it does not communicate, as the averaged gradients are equal on
// all ranks. Parameters may be on several devices; each counts once, even if it is given twice. Throws c10::Error like
// LibTorch. Thread-compatible.
at::Tensor ClipGradNorm(const std::vector<at::Tensor>& parameters, double max_norm, double norm_type = 2.0);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_EXTRAS_NN_H_
