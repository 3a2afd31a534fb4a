#ifndef DDPRUN_WORKER_RUNTIME_DDP_DISTRIBUTED_DATA_PARALLEL_H_
#define DDPRUN_WORKER_RUNTIME_DDP_DISTRIBUTED_DATA_PARALLEL_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/util/Exception.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/status_macros.h"
#include "worker_runtime/ddp/comm_hook.h"
#include "worker_runtime/ddp/ddp_options.h"
#include "worker_runtime/ddp/distributed_model.h"
#include "worker_runtime/process_group/process_group.h"

namespace c10d {
class Logger;
}  // namespace c10d

// DistributedDataParallel, the function that finds the tensors in a module's result, the loss as a number, and DdpCore,
// the part that does not depend on the module's type. Declares LibTorch's slow headers (c10d's Reducer) only forward.
namespace ddprun {

using TensorVisitor = absl::FunctionRef<void(at::Tensor&)>;

namespace outputs_internal {

template <typename T>
inline constexpr bool kIsOptional = false;
template <typename T>
inline constexpr bool kIsOptional<std::optional<T>> = true;

template <typename T>
inline constexpr bool kNever = false;

}  // namespace outputs_internal

// Calls `visit`, which may replace the tensor, with every tensor in the result of a module's forward. Supports tensors,
// optionals, tuples, pairs, ranges (vectors, maps by value) of these, and values without tensors (numbers, strings).
// For your own struct, add a method that visits its tensors:
//
//   struct Output {
//     at::Tensor logits, loss;
//     void VisitTensors(ddprun::TensorVisitor visit) { visit(logits); visit(loss); }
//   };
template <typename T>
void VisitTensors(T& value, TensorVisitor visit) {
  if constexpr (std::is_same_v<T, at::Tensor>) {
    visit(value);
  } else if constexpr (requires { value.VisitTensors(visit); }) {
    value.VisitTensors(visit);
  } else if constexpr (outputs_internal::kIsOptional<T>) {
    if (value.has_value()) VisitTensors(*value, visit);
  } else if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_convertible_v<T, std::string> ||
                       std::is_const_v<T>) {
    // Contains no tensors.
  } else if constexpr (requires { value.begin() != value.end(); }) {
    for (auto& element : value) VisitTensors(element, visit);
  } else if constexpr (requires { std::tuple_size<T>::value; }) {
    std::apply([visit](auto&... elements) { (VisitTensors(elements, visit), ...); }, value);
  } else {
    static_assert(outputs_internal::kNever<T>, "give this type a method void VisitTensors(ddprun::TensorVisitor)");
  }
}

// The part of DistributedDataParallel that does not depend on the module's type; its methods are documented there.
// Graphs whose backward has not run yet hold weak references to it. Thread-compatible.
class DdpCore : public std::enable_shared_from_this<DdpCore> {
 public:
  static absl::StatusOr<std::shared_ptr<DdpCore>> Create(std::shared_ptr<torch::nn::Module> module,
                                                         std::shared_ptr<ProcessGroup> group, DdpOptions options);
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
  std::optional<double> bucket_cap_mb() const { return options_.bucket_cap_mb; }
  const std::shared_ptr<ProcessGroup>& group() const { return group_; }

  // Flags of Python's class: the first is false under no_sync; the second is true if the next forward sets the buffers
  // to rank 0's.
  bool require_backward_grad_sync = true;
  bool require_forward_param_sync = true;

 private:
  class ForwardCheck;
  class Reducer;

  DdpCore(std::shared_ptr<torch::nn::Module> module, std::shared_ptr<ProcessGroup> group, DdpOptions options);
  absl::Status SetUp();
  void CollectTrainedParameters();
  absl::Status MeasureBucketCap();
  void MakeReducerAndLogger();
  // Uses shared memory if all ranks can.
  absl::Status ShareMemory();
  // The reducer would report this too, but without the parameters' names.
  void CheckLastBackwardFinished() const;
  void DelayReductionToEndOfBackward(absl::Span<at::Tensor* const> outputs);
  bool BuffersNeedSync() const;
  // Sets `tensors` to those of rank 0. Collective. Throws like LibTorch.
  void BroadcastFromRankZero(const std::vector<at::Tensor>& tensors) const;

  const std::shared_ptr<torch::nn::Module> module_;
  const std::shared_ptr<ProcessGroup> group_;
  DdpOptions options_;
  // Parameters that require a gradient, in the order of named_parameters(), which is Python's. A tensor with several
  // names (tied weights) appears once, under its first name.
  std::vector<at::Tensor> parameters_;
  std::vector<std::string> names_;
  std::vector<bool> sparse_;  // true if it gets sparse gradients: the weight of an Embedding with sparse(true)
  std::shared_ptr<Reducer> reducer_;
  std::shared_ptr<c10d::Logger> logger_;  // the reducer holds it only weakly
  std::unique_ptr<ForwardCheck> forward_check_;
  bool has_buffers_ = false;  // at creation; the buffers themselves may be replaced
  bool has_hook_ = false;
  bool delay_all_reduce_queued_ = false;
  // True if the last forward ran under no_sync: its backward reduces nothing, inside or outside of the guard.
  bool last_forward_was_local_ = false;
  // Time at which each parameter last became ready, as of the end of the last forward. If it is unchanged since, the
  // parameter did not become ready in this backward.
  std::vector<int64_t> ready_times_;
};

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
    DDPRUN_RETURN_IF_ERROR(made->Connect(std::move(group), std::nullopt, false));
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
    DDPRUN_ASSIGN_OR_RETURN(std::shared_ptr<DdpCore> core,
                            DdpCore::Create(module_, std::move(group), std::move(options)));
    if (make_hook_ != nullptr) DDPRUN_RETURN_IF_ERROR(core->RegisterCommHook(make_hook_()));
    core_ = std::move(core);
    return absl::OkStatus();
  }
  void Disconnect() override {
    layout_ = bucket_layout();
    core_ = nullptr;
  }

  // Runs the module's forward. Its result may contain tensors in any form that VisitTensors supports. With gradients
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
    explicit NoSync(DdpCore* core) : core_(core), before_(core->require_backward_grad_sync) {
      core_->require_backward_grad_sync = false;
    }
    ~NoSync() { core_->require_backward_grad_sync = before_; }
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
  // Registers a hook with a state that belongs to one group: `make` is called for each group.
  absl::Status RegisterCommHook(std::function<CommHook()> make) {
    if (make_hook_ != nullptr) {
      return absl::FailedPreconditionError(
          "a communication hook is already registered; compose hooks, or create a new DistributedDataParallel");
    }
    if (core_ != nullptr) DDPRUN_RETURN_IF_ERROR(core_->RegisterCommHook(make()));
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
  bool require_forward_param_sync() const { return core().require_forward_param_sync; }
  void set_require_forward_param_sync(bool value) { core().require_forward_param_sync = value; }

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
  std::shared_ptr<DdpCore> core_;        // nullptr: not connected
  std::optional<BucketLayout> layout_;   // layout of the last connection
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

// ---- the loss as a number ----

// Each rank computes the loss of its own samples, and DDP averages gradients, not losses, so the ranks' losses differ.
// Their average equals the loss of a single process with the whole batch, if all ranks have the same number of samples.

// Returns the loss of this rank's samples. `loss`: one floating-point element. Waits for a GPU, does not communicate.
double LossOfThisRank(const at::Tensor& loss);

// Returns the mean of all ranks' losses, the same value on all ranks. Collective. Costs a round trip, so do not call it
// in every step. Errors: those of ProcessGroup's operations.
absl::StatusOr<double> LossAveragedOverRanks(const at::Tensor& loss, ProcessGroup& group);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_DDP_DISTRIBUTED_DATA_PARALLEL_H_
