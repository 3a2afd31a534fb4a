#ifndef DDPRUN_WORKER_RUNTIME_DDP_DISTRIBUTED_DATA_PARALLEL_H_
#define DDPRUN_WORKER_RUNTIME_DDP_DISTRIBUTED_DATA_PARALLEL_H_

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker_runtime/ddp/comm_hook.h"
#include "worker_runtime/ddp/ddp_core.h"
#include "worker_runtime/ddp/ddp_options.h"
#include "worker_runtime/ddp/join_options.h"
#include "worker_runtime/ddp/outputs.h"
#include "worker_runtime/process_group/process_group.h"

namespace ddprun {

// Data parallel training of any torch::nn::Module, as Python's torch.nn.parallel.DistributedDataParallel and on the same
// c10d::Reducer: each rank runs the module on its own samples, and while backward runs, the gradients are averaged over
// the ranks in buckets (Li et al., PyTorch Distributed: Experiences on Accelerating Data Parallel Training, VLDB 2020).
// Since all begin with rank 0's parameters and take the same steps, they stay equal bit for bit.
//
//   auto ddp = ddprun::MakeDistributedDataParallel(model, group);
//   if (!ddp.ok()) return ddp.status();
//   ddprun::AdamW optimizer(model->parameters());
//   for (...) {
//     at::Tensor loss = Loss((*ddp)->forward(inputs), targets);   // the loss of this rank's samples
//     (*ddp)->zero_grad();
//     loss.backward();                                            // gradients are averaged here
//     optimizer.step();
//   }
//
// forward and backward talk to the other ranks and throw as LibTorch does: run them inside ProcessGroup::Try, which turns
// a lost peer or a timeout into an error that names it. After such an error destroy this object, make a new group and a
// new DistributedDataParallel on the same module.
//
// The module stays the caller's too: optimizers, state, train() and eval() go to it. Its parameters may be on several
// devices (model parallel inside a rank). Parameters added or frozen later are not noticed: make a new one.
//
// All ranks make the same calls in the same order. Thread-compatible.
template <class M>
class DistributedDataParallel {
 public:
  // Compares the models of all ranks, then sets parameters and buffers to those of rank 0. Collective.
  // Errors: InvalidArgument if the module has no parameter that needs a gradient, if an option can't be, or if the ranks'
  // models or options differ: the text names the first parameter that does, with both shapes, on all ranks. Others are
  // those of ProcessGroup's operations.
  static absl::StatusOr<std::shared_ptr<DistributedDataParallel>> Create(std::shared_ptr<M> module,
                                                                         std::shared_ptr<ProcessGroup> group,
                                                                         const DdpOptions& options = {}) {
    absl::StatusOr<std::unique_ptr<DdpCore>> core = DdpCore::Create(module, std::move(group), options);
    if (!core.ok()) return core.status();
    return std::shared_ptr<DistributedDataParallel>(new DistributedDataParallel(std::move(module), *std::move(core)));
  }

  // Takes its hooks off the parameters. Gradients that are views stay valid.
  ~DistributedDataParallel() = default;
  DistributedDataParallel(const DistributedDataParallel&) = delete;
  DistributedDataParallel& operator=(const DistributedDataParallel&) = delete;

  // The module's forward. What it returns may hold tensors as outputs.h knows them. With gradients enabled, a backward
  // from what is returned has to follow before the next forward.
  template <class... Args>
  auto forward(Args&&... args) {
    core_->PreForward();
    std::decay_t<decltype(module_->forward(std::forward<Args>(args)...))> outputs =
        module_->forward(std::forward<Args>(args)...);
    std::vector<at::Tensor*> tensors;
    VisitTensors(outputs, [&tensors](at::Tensor& tensor) { tensors.push_back(&tensor); });
    core_->PostForward(tensors);
    return outputs;
  }
  template <class... Args>
  auto operator()(Args&&... args) {
    return forward(std::forward<Args>(args)...);
  }

  // While the guard lives, forward and backward add gradients up on this rank only; the first pass after it averages the
  // sum. Both, forward and backward, belong inside.
  //   { auto no_sync = ddp->no_sync(); loss = ...; loss.backward(); }
  class [[nodiscard]] NoSync {
   public:
    explicit NoSync(DdpCore* core) : core_(core), before_(core->require_backward_grad_sync()) {
      core_->set_require_backward_grad_sync(false);
    }
    ~NoSync() { core_->set_require_backward_grad_sync(before_); }
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    DdpCore* const core_;
    const bool before_;
  };
  NoSync no_sync() { return NoSync(core_.get()); }

  // For the gradients of all trained parameters; right with gradient_as_bucket_view too.
  void zero_grad(bool set_to_none = true) { core_->ZeroGrad(set_to_none); }

  // Replaces the all-reduce of gradients. At most once, and before the first backward.
  // Errors: FailedPrecondition if there is one already.
  absl::Status RegisterCommHook(CommHook hook) { return core_->RegisterCommHook(std::move(hook)); }

  // Uneven inputs: runs `loop`, in which this rank trains with as many batches as it has, through this object. A rank
  // that is done takes part in the collectives of the others until all are done; then all have the model of the last.
  // Collectives of the caller's own are not followed, so there must be none in the loop. Collective.
  // Errors: what `loop` returned or threw; OutOfRange names the ranks that ran out of inputs, if `options` say that this
  // is an error; others are those of ProcessGroup's operations.
  absl::Status Join(absl::FunctionRef<absl::Status()> loop, const JoinOptions& options = {}) {
    return core_->Join(loop, options);
  }

  // The buckets as they are now: to be given as DdpOptions::initial_bucket_layout where a run goes on with the same bits.
  BucketLayout bucket_layout() const { return core_->bucket_layout(); }

  const std::shared_ptr<M>& module() const { return module_; }
  const std::shared_ptr<ProcessGroup>& group() const { return core_->group(); }

 private:
  DistributedDataParallel(std::shared_ptr<M> module, std::unique_ptr<DdpCore> core)
      : module_(std::move(module)), core_(std::move(core)) {}

  const std::shared_ptr<M> module_;
  const std::unique_ptr<DdpCore> core_;
};

// The same without naming the module's type.
template <class M>
absl::StatusOr<std::shared_ptr<DistributedDataParallel<M>>> MakeDistributedDataParallel(
    std::shared_ptr<M> module, std::shared_ptr<ProcessGroup> group, const DdpOptions& options = {}) {
  return DistributedDataParallel<M>::Create(std::move(module), std::move(group), options);
}
template <class M>
absl::StatusOr<std::shared_ptr<DistributedDataParallel<M>>> MakeDistributedDataParallel(
    const torch::nn::ModuleHolder<M>& module, std::shared_ptr<ProcessGroup> group, const DdpOptions& options = {}) {
  return DistributedDataParallel<M>::Create(module.ptr(), std::move(group), options);
}

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_DDP_DISTRIBUTED_DATA_PARALLEL_H_
