#ifndef DDPRUN_WORKER_RUNTIME_DDP_DISTRIBUTED_DATA_PARALLEL_H_
#define DDPRUN_WORKER_RUNTIME_DDP_DISTRIBUTED_DATA_PARALLEL_H_

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <functional>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker_runtime/ddp/comm_hook.h"
#include "worker_runtime/ddp/ddp_core.h"
#include "worker_runtime/ddp/ddp_options.h"
#include "worker_runtime/ddp/distributed_model.h"
#include "worker_runtime/ddp/outputs.h"
#include "worker_runtime/process_group/process_group.h"

namespace ddprun {

// Data parallel training of any torch::nn::Module, like Python's torch.nn.parallel.DistributedDataParallel and based on
// the same c10d::Reducer: each rank runs the module on its own samples, and during backward, gradients are averaged
// over the ranks in buckets (Li et al., PyTorch Distributed: Experiences on Accelerating Data Parallel Training, VLDB
// 2020). All ranks start with rank 0's parameters and take the same steps, so parameters stay equal bit for bit.
//
//   ddprun::DistributedDataParallel ddp(net);       // connected to each round's group by ddprun::Training
//   at::Tensor loss = Loss(ddp(inputs), targets);   // the loss of this rank's samples
//   step.Backward(loss);                            // gradients are averaged here
//
// or, for one group:
//
//   DDPRUN_ASSIGN_OR_RETURN(auto ddp, ddprun::MakeDistributedDataParallel(net, worker.group()));
//   at::Tensor loss = Loss(ddp->forward(inputs), targets);
//   ddp->zero_grad();
//   loss.backward();
//   optimizer.step();
//
// Between two groups, calls that communicate, and zero_grad, throw c10::Error. In the next group the buckets are those
// of the last one, so that sums are computed in the same order.
//
// Gradients that arrive without a preceding forward of this object (because the module's own was called) would not be
// averaged: backward throws c10::ValueError and names the parameter, except under no_sync().
// forward and backward communicate with other ranks and throw like LibTorch: without Training, run them inside
// ProcessGroup::Try, which converts a lost peer or a timeout into an error that names the peer. After such an error,
// Disconnect, create a new group, and Connect.
//
// The module is shared with the caller: use it for optimizers, state, train() and eval(). Its parameters may be on
// several devices (model parallel within a rank). Parameters that are added or frozen later are not noticed: create a
// new DistributedDataParallel.
//
// All ranks must make the same calls in the same order. Thread-compatible.
template <class M>
class DistributedDataParallel final : public DistributedModel {
 public:
  // Not connected to a group.
  explicit DistributedDataParallel(std::shared_ptr<M> module, DdpOptions options = {})
      : module_(std::move(module)), options_(std::move(options)) {}
  explicit DistributedDataParallel(const torch::nn::ModuleHolder<M>& module, DdpOptions options = {})
      : DistributedDataParallel(module.ptr(), std::move(options)) {}

  // Connected to `group`: compares the models of all ranks, then sets parameters and buffers to those of rank 0.
  // Collective. Errors: InvalidArgument if the module has no parameter that requires a gradient, if an option is
  // invalid, or if models or options differ between ranks: the message, on all ranks, names the first difference with
  // both shapes. Otherwise those of ProcessGroup's operations.
  static absl::StatusOr<std::shared_ptr<DistributedDataParallel>> Create(std::shared_ptr<M> module,
                                                                         std::shared_ptr<ProcessGroup> group,
                                                                         const DdpOptions& options = {}) {
    auto made = std::make_shared<DistributedDataParallel>(std::move(module), options);
    if (absl::Status status = made->Connect(std::move(group), std::nullopt, false); !status.ok()) return status;
    return made;
  }

  DistributedDataParallel(const DistributedDataParallel&) = delete;
  DistributedDataParallel& operator=(const DistributedDataParallel&) = delete;

  // See DistributedModel. DdpOptions::init_sync false: the ranks are taken for equal.
  absl::Status Connect(std::shared_ptr<ProcessGroup> group, const std::optional<BucketLayout>& layout,
                       bool equal) override {
    Disconnect();
    DdpOptions options = options_;
    if (equal) options.init_sync = false;
    if (layout.has_value()) options.initial_bucket_layout = layout_ = layout;
    absl::StatusOr<std::unique_ptr<DdpCore>> core = DdpCore::Create(module_, std::move(group), options);
    if (!core.ok()) return core.status();
    if (make_hook_ != nullptr) {
      if (absl::Status status = (*core)->RegisterCommHook(make_hook_()); !status.ok()) return status;
    }
    core_ = *std::move(core);
    return absl::OkStatus();
  }
  void Disconnect() override {
    layout_ = bucket_layout();
    core_ = nullptr;
  }

  // Runs the module's forward. Its result may contain tensors in any form that outputs.h supports. With gradients
  // enabled, backward must run on the result before the next forward.
  template <class... Args>
  auto forward(Args&&... args) {
    OnPass(/*backward=*/false);
    core().PreForward();
    std::decay_t<decltype(module_->forward(std::forward<Args>(args)...))> outputs =
        module_->forward(std::forward<Args>(args)...);
    std::vector<at::Tensor*> tensors;
    VisitTensors(outputs, [&tensors](at::Tensor& tensor) { tensors.push_back(&tensor); });
    core().PostForward(tensors);
    OnPass(/*backward=*/true);
    return outputs;
  }
  template <class... Args>
  auto operator()(Args&&... args) {
    return forward(std::forward<Args>(args)...);
  }

  // While the guard is alive, gradients accumulate on this rank only; the first pass after it averages the sum. Both
  // forward and backward must run inside the guard's scope.
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
  NoSync no_sync() { return NoSync(&core()); }

  // Does early the work with which the next forward would begin: sets the buffers to rank 0's, and after the first
  // iteration rebuilds the buckets. Call it between backward and the optimizer's step in training that survives the
  // loss of ranks: then this step needs nothing more from rank 0, which may be lost before the next one. Does not
  // change results. Collective; throws like LibTorch.
  void FinishBackward() override { core().FinishBackward(); }

  // Zeroes the gradients of all trained parameters. Works with gradient_as_bucket_view.
  void zero_grad(bool set_to_none = true) override { core().ZeroGrad(set_to_none); }

  // Replaces the all-reduce of gradients in all groups. At most once, and before the first backward.
  // Errors: FailedPrecondition if a hook is already registered.
  absl::Status RegisterCommHook(CommHook hook) {
    return RegisterCommHook([hook = std::move(hook)] { return hook; });
  }
  // Same, for a hook with a state that belongs to one group: `make` is called for each group.
  absl::Status RegisterCommHook(std::function<CommHook()> make) {
    if (make_hook_ != nullptr) {
      return absl::FailedPreconditionError(
          "a communication hook is already registered; compose hooks, or create a new DistributedDataParallel");
    }
    if (core_ != nullptr) {
      if (absl::Status status = core_->RegisterCommHook(make()); !status.ok()) return status;
    }
    make_hook_ = std::move(make);
    return absl::OkStatus();
  }

  // Pass it as DdpOptions::initial_bucket_layout to continue a run with the same bits in another process.
  std::optional<BucketLayout> bucket_layout() const override {
    return core_ == nullptr ? layout_ : core_->bucket_layout();
  }

  // DdpOptions::bucket_cap_mb, or the value that measure_bucket_cap has chosen.
  std::optional<double> bucket_cap_mb() const { return core().bucket_cap_mb(); }

  // True if the next forward sets the buffers to rank 0's, as in Python: not after a forward within no_sync. A step
  // changes this state, so code that undoes a step (TrainingState::Rollback) and continues with the same object must
  // restore it.
  bool require_forward_param_sync() const { return core().require_forward_param_sync(); }
  void set_require_forward_param_sync(bool value) { core().set_require_forward_param_sync(value); }

  const std::shared_ptr<M>& module() const { return module_; }
  torch::nn::Module& base_module() override { return *module_; }
  const std::shared_ptr<ProcessGroup>& group() const { return core().group(); }

 private:
  DdpCore& core() const {
    TORCH_CHECK(core_ != nullptr,
                "DistributedDataParallel is not connected to a process group: call it in the step of ddprun::Training, "
                "or make it with MakeDistributedDataParallel");
    return *core_;
  }

  const std::shared_ptr<M> module_;
  const DdpOptions options_;
  std::function<CommHook()> make_hook_;  // nullptr: none
  std::unique_ptr<DdpCore> core_;        // nullptr: not connected
  std::optional<BucketLayout> layout_;   // of the last connection
};

// DistributedDataParallel::Create with the module's type deduced.
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
