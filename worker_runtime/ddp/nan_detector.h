#ifndef DDPRUN_WORKER_RUNTIME_DDP_NAN_DETECTOR_H_
#define DDPRUN_WORKER_RUNTIME_DDP_NAN_DETECTOR_H_

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <memory>

#include "absl/status/status.h"
#include "worker_runtime/process_group/process_group.h"

namespace ddprun {

// Finds on which rank NaN or infinite values began. DistributedDataParallel averages the gradients, so that afterwards
// all ranks have them; hooks on the parameters (Tensor::register_hook) see each rank's own gradients before.
//
//   ddprun::NanDetector nan_detector(model);
//   ...
//   loss.backward();
//   DDPRUN_RETURN_IF_ERROR(nan_detector.Check(loss, *worker.group));   // every step, or every few
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

  // Collective, after backward and before the optimizer's step. `loss`: this rank's, one element. Covers all gradients
  // since the last call, also those under no_sync.
  // Errors: FailedPrecondition, the same on all ranks: the lowest rank on which a value is not finite, and which one is
  // the first: a parameter, before this step; the loss; or the gradient of a parameter, in the order of backward (as
  // "not finite" also counts a gradient whose sum overflows its dtype, at least float). Those of ProcessGroup's
  // operations.
  absl::Status Check(const at::Tensor& loss, ProcessGroup& group);

 private:
  class Gradients;

  const std::shared_ptr<Gradients> gradients_;
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_DDP_NAN_DETECTOR_H_
