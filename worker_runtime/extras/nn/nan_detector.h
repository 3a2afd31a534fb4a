#ifndef DDPRUN_WORKER_RUNTIME_EXTRAS_NN_NAN_DETECTOR_H_
#define DDPRUN_WORKER_RUNTIME_EXTRAS_NN_NAN_DETECTOR_H_

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <memory>

#include "absl/status/status.h"
#include "worker_runtime/process_group/process_group.h"

namespace ddprun {

// Finds the rank on which NaN or infinite values first appeared. DistributedDataParallel averages the gradients, after
// which all ranks have such values; hooks on the parameters (Tensor::register_hook) see each rank's own gradients
// before.
//
//   ddprun::NanDetector nan_detector(model);
//   ...
//   loss.backward();
//   DDPRUN_RETURN_IF_ERROR(nan_detector.Check(loss, *worker.group()));   // every step, or every few
//   optimizer.step();
//
// Costs one pass over each gradient, and a round trip for each Check, which also waits for the GPU. Works without
// DistributedDataParallel too. One backward at a time; otherwise thread-compatible.
class NanDetector {
 public:
  // Watches the parameters that require a gradient. They must not be replaced while this object exists.
  explicit NanDetector(const torch::nn::Module& module);
  template <class M>
  explicit NanDetector(const std::shared_ptr<M>& module)
      : NanDetector(static_cast<const torch::nn::Module&>(*module)) {}
  template <class M>
  explicit NanDetector(const torch::nn::ModuleHolder<M>& module) : NanDetector(module.ptr()) {}

  // Removes the hooks.
  ~NanDetector();
  NanDetector(const NanDetector&) = delete;
  NanDetector& operator=(const NanDetector&) = delete;

  // Collective; call it after backward and before the optimizer's step. `loss`: this rank's, one element. Covers all
  // gradients since the last call, including those under no_sync.
  // Errors: FailedPrecondition, the same on all ranks, names the lowest rank with a value that is not finite, and the
  // first such value: a parameter, from before this step; the loss; or the gradient of a parameter, in the order of
  // backward (a gradient whose sum overflows its dtype, at least float, also counts). Otherwise those of ProcessGroup's
  // operations.
  absl::Status Check(const at::Tensor& loss, ProcessGroup& group);

 private:
  class Gradients;

  const std::shared_ptr<Gradients> gradients_;
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_EXTRAS_NN_NAN_DETECTOR_H_
