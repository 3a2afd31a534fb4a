#ifndef DDPRUN_WORKER_RUNTIME_DDP_FORWARD_CHECK_H_
#define DDPRUN_WORKER_RUNTIME_DDP_FORWARD_CHECK_H_

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "worker_runtime/ddp/module_tensors.h"

namespace ddprun {

// Detects gradients that would not be averaged, because the module's own forward was called instead of
// DistributedDataParallel's: a hook on each parameter calls `expected` when the parameter's gradient is complete, and
// if that returns false, backward throws c10::ValueError, which names the parameter. Without the check, the ranks would
// silently diverge. Internal to this directory.
class ForwardCheck {
 public:
  ForwardCheck(const TrainedParameters& trained, std::function<bool()> expected);
  // Removes the hooks.
  ~ForwardCheck();
  ForwardCheck(const ForwardCheck&) = delete;
  ForwardCheck& operator=(const ForwardCheck&) = delete;

 private:
  // LibTorch versions differ in the pointer's type.
  using Node = decltype(torch::autograd::impl::grad_accumulator(std::declval<const at::Tensor&>()));
  std::vector<std::pair<Node, uintptr_t>> hooks_;
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_DDP_FORWARD_CHECK_H_
