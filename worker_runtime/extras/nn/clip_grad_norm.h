#ifndef DDPRUN_WORKER_RUNTIME_EXTRAS_NN_CLIP_GRAD_NORM_H_
#define DDPRUN_WORKER_RUNTIME_EXTRAS_NN_CLIP_GRAD_NORM_H_

#include <ATen/core/Tensor.h>

#include <vector>

namespace ddprun {

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

#endif  // DDPRUN_WORKER_RUNTIME_EXTRAS_NN_CLIP_GRAD_NORM_H_
