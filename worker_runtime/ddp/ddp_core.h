#ifndef DDPRUN_WORKER_RUNTIME_DDP_DDP_CORE_H_
#define DDPRUN_WORKER_RUNTIME_DDP_DDP_CORE_H_

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker_runtime/ddp/comm_hook.h"
#include "worker_runtime/ddp/ddp_options.h"
#include "worker_runtime/process_group/process_group.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace ddprun {

struct DdpState;

// The part of DistributedDataParallel that does not depend on the module's type. Its methods are documented there.
// Thread-compatible.
class DdpCore {
 public:
  static absl::StatusOr<std::unique_ptr<DdpCore>> Create(std::shared_ptr<torch::nn::Module> module,
                                                         std::shared_ptr<ProcessGroup> group,
                                                         const DdpOptions& options);
  ~DdpCore();
  DdpCore(const DdpCore&) = delete;
  DdpCore& operator=(const DdpCore&) = delete;

  // Called before and after the module's forward. `outputs` are the tensors that forward returned, and may be replaced.
  // They throw like LibTorch.
  void PreForward();
  void PostForward(absl::Span<at::Tensor* const> outputs);
  void FinishBackward();

  void ZeroGrad(bool set_to_none);
  absl::Status RegisterCommHook(CommHook hook);
  BucketLayout bucket_layout() const;
  std::optional<double> bucket_cap_mb() const;
  bool require_backward_grad_sync() const;
  void set_require_backward_grad_sync(bool value);
  bool require_forward_param_sync() const;
  void set_require_forward_param_sync(bool value);
  const std::shared_ptr<ProcessGroup>& group() const;

 private:
  explicit DdpCore(std::shared_ptr<DdpState> state);
  // Graphs whose backward has not run yet hold weak references to it.
  const std::shared_ptr<DdpState> state_;
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_DDP_DDP_CORE_H_
