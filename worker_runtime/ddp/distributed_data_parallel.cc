#include "worker_runtime/ddp/distributed_data_parallel.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <c10/core/ScalarType.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/modules/embedding.h>

#include <algorithm>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torch/csrc/distributed/c10d/logger.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <unordered_map>
#include <unordered_set>

#include "absl/algorithm/container.h"
#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "base/steady_time.h"
#include "worker_runtime/base/non_restartable.h"
#include "worker_runtime/base/parameters.h"
#include "worker_runtime/base/torch_try.h"
#include "worker_runtime/ddp/bucket_policy.h"
#include "worker_runtime/ddp/model_description.h"
#include "worker_runtime/ddp/shared_memory_all_reduce.h"
#include "worker_runtime/process_group/agreement.h"
#include "worker_runtime/process_group/collectives.h"

// Parts, in this order: the module's tensors and their comparison between ranks, the measurement of the all-reduce,
// what is put between the module and LibTorch's backward (Reducer, ForwardCheck, OutputSink, HookAdapter), DdpCore.
namespace ddprun {
namespace {

using torch::autograd::variable_list;

constexpr size_t kBroadcastBytes = 250 * 1024 * 1024;
constexpr size_t kNamesInErrors = 5;

// ---- the module's tensors ----

// Compares tensors by identity, as Python does: two parameters may share memory and still be distinct.
class SeenOnce {
 public:
  bool operator()(const at::Tensor& tensor) { return seen_.insert(tensor.unsafeGetTensorImpl()).second; }

 private:
  std::unordered_set<const void*> seen_;
};

std::unordered_set<const void*> SparseWeights(const torch::nn::Module& module) {
  std::unordered_set<const void*> weights;
  for (const auto& child : module.modules()) {
    if (const auto* embedding = child->as<torch::nn::EmbeddingImpl>()) {
      if (embedding->options.sparse()) weights.insert(embedding->weight.unsafeGetTensorImpl());
    }
    if (const auto* bag = child->as<torch::nn::EmbeddingBagImpl>()) {
      if (bag->options.sparse()) weights.insert(bag->weight.unsafeGetTensorImpl());
    }
  }
  return weights;
}

// Returns all current buffers; modules may replace them.
std::vector<at::Tensor> CollectBuffers(const torch::nn::Module& module) {
  std::vector<at::Tensor> buffers;
  SeenOnce first_time;
  for (const at::Tensor& buffer : module.buffers()) {
    if (first_time(buffer)) buffers.push_back(buffer);
  }
  return buffers;
}

// Returns all parameters (frozen ones included), then buffers, without gradients.
std::vector<at::Tensor> CollectState(const torch::nn::Module& module, bool with_buffers) {
  std::vector<at::Tensor> state;
  for (const at::Tensor& parameter : Parameters(module)) state.push_back(parameter.detach());
  if (with_buffers) {
    for (const at::Tensor& buffer : CollectBuffers(module)) state.push_back(buffer.detach());
  }
  return state;
}

// Describes parameters, then buffers.
ModelDescription DescribeModule(const torch::nn::Module& module, const DdpOptions& options) {
  const auto describe = [](const std::string& name, const at::Tensor& tensor) -> ModelDescription::Entry {
    return {.name = name, .shape = tensor.sizes().vec(), .dtype = c10::toString(tensor.scalar_type())};
  };
  ModelDescription description;
  description.options = DescribeOptions(options);
  for (const auto& parameter : module.named_parameters()) {
    ModelDescription::Entry& entry = description.entries.emplace_back(describe(parameter.key(), parameter.value()));
    entry.trained = parameter.value().requires_grad();
  }
  if (!options.broadcast_buffers) return description;
  for (const auto& buffer : module.named_buffers()) {
    description.entries.emplace_back(describe(buffer.key(), buffer.value())).buffer = true;
  }
  return description;
}

// Collective. Returns OK if all ranks have rank 0's model and options.
// Errors, the same message on all ranks: InvalidArgument has the first difference, with the shapes (dtypes, names) of
// rank 0 and of the lowest rank that differs. Otherwise those of ProcessGroup's operations.
absl::Status CheckAllRanksAgree(const ModelDescription& description, ProcessGroup& group) {
  if (group.size() == 1) return absl::OkStatus();
  DDPRUN_ASSIGN_OR_RETURN(const std::string text, group.BroadcastText(EncodeDescription(description), 0));
  DDPRUN_ASSIGN_OR_RETURN(const ModelDescription of_rank0, DecodeDescription(text));
  // All ranks return the difference found by the lowest rank that differs.
  const std::string difference = FirstDifference(of_rank0, 0, description, group.rank());
  return OutcomeOfAll(&group, difference.empty() ? absl::OkStatus() : absl::InvalidArgumentError(difference));
}

// ---- the speed of the all-reduce ----

constexpr int kSmallRounds = 25;  // more rounds, as these times vary more: woken threads may wait for a core
constexpr int kLargeRounds = 5;
constexpr int64_t kMinBytes = 64 * 1024;
constexpr int64_t kMaxBytes = 4 * 1024 * 1024;

// Returns the median time in seconds on the slowest rank.
absl::StatusOr<double> MeasureAllReduce(ProcessGroup& group, c10::Device device, int64_t elements, int rounds) {
  std::vector<double> seconds(rounds);
  DDPRUN_RETURN_IF_ERROR(group.Try("measuring the all-reduce", [&]() -> absl::Status {
    const at::Tensor tensor = at::zeros({elements}, at::TensorOptions().device(device));
    // The first one sets up connections.
    for (int round = -1; round < rounds; ++round) {
      const SteadyTime began = SteadyNow();
      std::vector<at::Tensor> tensors = {tensor};
      const c10::intrusive_ptr<c10d::Work> work = group.c10d()->allreduce(tensors);
      // Spins: in backward this thread computes meanwhile, and the backend's threads need a core in addition.
      while (!work->isCompleted()) {
      }
      work->wait();
      if (round >= 0) seconds[round] = absl::ToDoubleSeconds(SteadyNow() - began);
    }
    return absl::OkStatus();
  }));
  absl::c_sort(seconds);
  return AllReduceValue(group, seconds[rounds / 2], ReduceOp::kMax);
}

// Measures all-reduces of one element and of `bytes` bytes (clamped to kMinBytes to kMaxBytes) on `device`. Collective;
// the same result on all ranks. Waits for a GPU. Errors: those of ProcessGroup's operations.
absl::StatusOr<AllReduceSpeed> MeasureSpeed(ProcessGroup& group, c10::Device device, int64_t bytes) {
  DDPRUN_ASSIGN_OR_RETURN(const double latency, MeasureAllReduce(group, device, 1, kSmallRounds));
  const int64_t elements = std::clamp(bytes, kMinBytes, kMaxBytes) / static_cast<int64_t>(sizeof(float));
  DDPRUN_ASSIGN_OR_RETURN(const double large, MeasureAllReduce(group, device, elements, kLargeRounds));
  // On a fast link, one element may take as long.
  const double transfer = std::max(large - latency, 1e-6);
  return AllReduceSpeed{absl::Seconds(latency), static_cast<double>(elements * sizeof(float)) / transfer};
}

// ---- between the module and LibTorch's backward ----

// Adapts a CommHook to LibTorch's interface.
class HookAdapter : public c10d::CommHookInterface {
 public:
  HookAdapter(CommHook hook, std::shared_ptr<ProcessGroup> group) : hook_(std::move(hook)), group_(std::move(group)) {}

  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override {
    return hook_.run(GradBucket(bucket), *group_);
  }
  at::Tensor parseHookResult(const c10::IValue& result) override {
    return c10d::detail::parseCppCommHookResult(result);
  }

 private:
  const CommHook hook_;
  const std::shared_ptr<ProcessGroup> group_;
};

// LibTorch versions differ in the constructor's last arguments, which are found from the type itself; `arguments` are
// the others. A template, so that the branches for other versions are not compiled.
template <typename R, typename... Arguments>
std::shared_ptr<R> MakeReducer(Arguments... arguments) {
  using Caps = std::vector<int64_t>;
  if constexpr (std::is_constructible_v<R, Arguments..., Caps, bool>) {
    return std::make_shared<R>(std::move(arguments)..., Caps(), /*batched_grad_copy=*/false);
  } else if constexpr (std::is_constructible_v<R, Arguments..., Caps>) {
    return std::make_shared<R>(std::move(arguments)..., Caps());
  } else {
    return std::make_shared<R>(std::move(arguments)...);
  }
}

// An autograd node behind the module's outputs, for find_unused_parameters. Backward passes through it whichever output
// the loss was computed from, and it propagates "no gradient" for the others, so that the reducer marks their
// parameters.
struct OutputSink : torch::autograd::Function<OutputSink> {
  static variable_list forward(torch::autograd::AutogradContext* context, at::TensorList outputs) {
    context->set_materialize_grads(false);
    variable_list copies;
    for (const at::Tensor& output : outputs) copies.push_back(output.clone());
    return copies;
  }
  static variable_list backward(torch::autograd::AutogradContext*, variable_list gradients) { return gradients; }
};

std::vector<at::Tensor*> WithGraph(absl::Span<at::Tensor* const> outputs) {
  std::vector<at::Tensor*> with_graph;
  for (at::Tensor* output : outputs) {
    if (output->defined() && output->grad_fn() != nullptr) with_graph.push_back(output);
  }
  return with_graph;
}

// Replaces the outputs that have a graph by copies behind an OutputSink. Throws like LibTorch.
void ApplyOutputSink(absl::Span<at::Tensor* const> outputs) {
  const std::vector<at::Tensor*> with_graph = WithGraph(outputs);
  if (with_graph.empty()) return;
  variable_list inputs;
  for (const at::Tensor* output : with_graph) inputs.push_back(*output);
  variable_list copies = OutputSink::apply(at::TensorList(inputs));
  for (size_t i = 0; i < copies.size(); ++i) *with_graph[i] = std::move(copies[i]);
}

}  // namespace

// c10d's Reducer, with access to the internals that DDP needs.
class DdpCore::Reducer : public c10d::Reducer {
 public:
  using c10d::Reducer::Reducer;

  // The current buckets. They are rebuilt once, after the first iteration.
  BucketLayout layout() const {
    BucketLayout layout;
    for (const Bucket& bucket : buckets_) layout.push_back(bucket.variable_indices);
    return layout;
  }

  // True if a backward pass has started and not all of its gradients were reduced.
  bool unfinished() const { return require_finalize_; }

  // True if it reduces the gradients of the next backward pass: from prepare_for_backward until all are reduced.
  bool expects_gradients() const { return expect_autograd_hooks_; }
};

// Detects gradients that would not be averaged, because the module's own forward was called instead of
// DistributedDataParallel's: a hook on each parameter calls `expected` when the parameter's gradient is complete, and
// if that returns false, backward throws c10::ValueError, which names the parameter. Without the check, the ranks would
// silently diverge.
class DdpCore::ForwardCheck {
 public:
  ForwardCheck(const std::vector<at::Tensor>& parameters, const std::vector<std::string>& names,
               std::function<bool()> expected) {
    for (size_t i = 0; i < parameters.size(); ++i) {
      const auto check = [expected, name = names[i]](const variable_list& outputs, const variable_list&) {
        TORCH_CHECK_VALUE(expected(), "the gradient of parameter \"", name,
                          "\" would not be averaged over the ranks: no forward of DistributedDataParallel precedes "
                          "this backward pass; call its forward instead of the module's, once for each backward, or "
                          "use no_sync() for gradients that stay on this rank");
        return outputs;
      };
      Node node = torch::autograd::impl::grad_accumulator(parameters[i]);
      const uintptr_t key = node->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(check));
      hooks_.emplace_back(std::move(node), key);
    }
  }
  ~ForwardCheck() {
    for (auto& [node, key] : hooks_) node->del_post_hook(key);
  }
  ForwardCheck(const ForwardCheck&) = delete;
  ForwardCheck& operator=(const ForwardCheck&) = delete;

 private:
  // LibTorch versions differ in the pointer's type.
  using Node = decltype(torch::autograd::impl::grad_accumulator(std::declval<const at::Tensor&>()));
  std::vector<std::pair<Node, uintptr_t>> hooks_;
};

// ---- creation and end ----

DdpCore::DdpCore(std::shared_ptr<torch::nn::Module> module, std::shared_ptr<ProcessGroup> group, DdpOptions options)
    : module_(std::move(module)), group_(std::move(group)), options_(std::move(options)) {}

DdpCore::~DdpCore() {
  forward_check_.reset();
  // The order matters: the parameters' hooks refer to the reducer, and so does the logger's destructor.
  if (reducer_ != nullptr) reducer_->remove_autograd_hooks();
  logger_.reset();
  reducer_.reset();
}

absl::StatusOr<std::shared_ptr<DdpCore>> DdpCore::Create(std::shared_ptr<torch::nn::Module> module,
                                                         std::shared_ptr<ProcessGroup> group, DdpOptions options) {
  if (module == nullptr || group == nullptr) {
    return absl::InvalidArgumentError("DistributedDataParallel requires a module and a process group, got nullptr");
  }
  std::shared_ptr<DdpCore> core(new DdpCore(std::move(module), std::move(group), std::move(options)));
  const absl::Status status = core->group_->Try("DistributedDataParallel", [&core] { return core->SetUp(); });
  // A wrong option, or models that differ between the ranks: a restart makes the same.
  if (absl::IsInvalidArgument(status)) return NonRestartable(status);
  DDPRUN_RETURN_IF_ERROR(status);
  if (core->options_.shared_memory && core->group_->size() > 1) DDPRUN_RETURN_IF_ERROR(core->ShareMemory());
  return core;
}

absl::Status DdpCore::SetUp() {
  CollectTrainedParameters();
  if (parameters_.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("module ", module_->name(),
                     " has no parameter that requires a gradient; use it without DistributedDataParallel"));
  }
  DDPRUN_RETURN_IF_ERROR(CheckDdpOptions(options_, parameters_.size()));
  has_buffers_ = !CollectBuffers(*module_).empty();
  if (options_.init_sync) {
    DDPRUN_RETURN_IF_ERROR(CheckAllRanksAgree(DescribeModule(*module_, options_), *group_));
    BroadcastFromRankZero(CollectState(*module_, options_.broadcast_buffers));
  }
  if (options_.measure_bucket_cap && group_->size() > 1) DDPRUN_RETURN_IF_ERROR(MeasureBucketCap());
  MakeReducerAndLogger();
  forward_check_ = std::make_unique<ForwardCheck>(parameters_, names_, [weak = weak_from_this()] {
    const std::shared_ptr<DdpCore> core = weak.lock();
    return core == nullptr || core->reducer_->expects_gradients() || !core->require_backward_grad_sync ||
           core->last_forward_was_local_;
  });
  return absl::OkStatus();
}

void DdpCore::CollectTrainedParameters() {
  const std::unordered_set<const void*> sparse = SparseWeights(*module_);
  SeenOnce first_time;
  for (const auto& parameter : module_->named_parameters()) {
    const at::Tensor& tensor = parameter.value();
    if (!tensor.requires_grad() || !first_time(tensor)) continue;
    parameters_.push_back(tensor);
    names_.push_back(parameter.key());
    sparse_.push_back(sparse.contains(tensor.unsafeGetTensorImpl()));
  }
}

absl::Status DdpCore::MeasureBucketCap() {
  int64_t bytes = 0;
  for (const at::Tensor& parameter : parameters_) bytes += static_cast<int64_t>(parameter.nbytes());
  DDPRUN_ASSIGN_OR_RETURN(const AllReduceSpeed speed, MeasureSpeed(*group_, parameters_.front().device(), bytes));
  options_.bucket_cap_mb = ChooseBucketCapMb(bytes, speed);
  return absl::OkStatus();
}

void DdpCore::MakeReducerAndLogger() {
  const BucketLimits limits = ChooseBucketLimits(options_);
  BucketLayout buckets;
  if (options_.initial_bucket_layout.has_value()) {
    buckets = *options_.initial_bucket_layout;
  } else {
    buckets = std::get<0>(c10d::compute_bucket_assignment_by_size(parameters_, limits.initial, sparse_));
    // Gradients become ready roughly in the reverse order of the parameters' definition.
    std::reverse(buckets.begin(), buckets.end());
  }
  std::unordered_map<size_t, std::string> names;
  for (size_t i = 0; i < names_.size(); ++i) names[i] = names_[i];
  reducer_ = MakeReducer<Reducer>(parameters_, std::move(buckets), group_->c10d(), sparse_, limits.cap_bytes,
                                  options_.find_unused_parameters, options_.gradient_as_bucket_view, std::move(names),
                                  limits.first_bytes, /*skip_all_reduce_unused_params=*/false,
                                  /*use_python_reducer=*/false);
  logger_ = std::make_shared<c10d::Logger>(reducer_);
  reducer_->set_logger(logger_);
  {
    // The logger takes a backend of the name "gloo" for a ProcessGroupGloo. Here one always wraps that, and LibTorch's
    // own wrapper of TORCH_DISTRIBUTED_DEBUG=DETAIL, in Python as well, ends the process.
    c10d::ProcessGroup& group = *group_->c10d();
    const auto restore = absl::MakeCleanup([&group, type = group.getBackendType()] { group.setDefaultBackend(type); });
    // Another name without a backend is an error in 2.15.
    group.setDefaultBackend(c10d::ProcessGroup::BackendType::UNDEFINED);
    logger_->set_construction_data_and_log(module_->name(), /*device_ids=*/{}, /*output_device=*/-1,
                                           options_.broadcast_buffers, /*has_sync_bn=*/false, options_.static_graph);
  }
  if (options_.static_graph) {
    reducer_->set_static_graph();
    logger_->set_static_graph();
  }
}

absl::Status DdpCore::ShareMemory() {
  const bool fits = absl::c_all_of(parameters_, [](const at::Tensor& tensor) {
    return tensor.is_cpu() && SharedMemoryAllReduce::Supports(tensor.scalar_type());
  });
  const absl::Status possible = OutcomeOfAll(
      group_.get(), fits ? absl::OkStatus() : absl::FailedPreconditionError("the parameters are not on the CPU"));
  if (absl::IsFailedPrecondition(possible)) return absl::OkStatus();
  DDPRUN_RETURN_IF_ERROR(possible);
  const auto shared = SharedMemoryAllReduce::Create(group_);
  if (absl::IsFailedPrecondition(shared.status())) return absl::OkStatus();
  DDPRUN_RETURN_IF_ERROR(shared.status());
  return RegisterCommHook((*shared)->Hook());
}

// ---- steps ----

void DdpCore::PreForward() {
  const bool with_grad = at::GradMode::is_enabled();
  if (with_grad) CheckLastBackwardFinished();
  if (with_grad && require_backward_grad_sync) {
    // The previous step used gradients that NCCL may have left half-reduced.
    ThrowIfError(group_->Health());
    logger_->set_runtime_stats_and_log();
    reducer_->prepare_for_forward();
  }
  if (with_grad) reducer_->rebuild_buckets();
  if (BuffersNeedSync()) BroadcastFromRankZero(CollectBuffers(*module_));
}

void DdpCore::PostForward(absl::Span<at::Tensor* const> outputs) {
  const bool finds_unused = options_.find_unused_parameters && !options_.static_graph;
  if (at::GradMode::is_enabled() && require_backward_grad_sync) {
    require_forward_param_sync = true;
    last_forward_was_local_ = false;
    std::vector<at::Tensor> roots;
    if (finds_unused) {
      for (const at::Tensor* output : outputs) {
        if (output->defined()) roots.push_back(*output);
      }
    }
    reducer_->prepare_for_backward(roots);
    ready_times_ = reducer_->get_backward_stats();
  } else {
    require_forward_param_sync = false;
    last_forward_was_local_ = at::GradMode::is_enabled();
  }
  if (finds_unused) ApplyOutputSink(outputs);
  if (options_.static_graph && !delay_all_reduce_queued_) DelayReductionToEndOfBackward(outputs);
}

void DdpCore::FinishBackward() {
  CheckLastBackwardFinished();
  reducer_->rebuild_buckets();
  if (!BuffersNeedSync()) return;
  BroadcastFromRankZero(CollectBuffers(*module_));
  require_forward_param_sync = false;
}

void DdpCore::ZeroGrad(bool set_to_none) { ZeroGradients(parameters_, set_to_none); }

absl::Status DdpCore::RegisterCommHook(CommHook hook) {
  if (has_hook_) {
    return absl::FailedPreconditionError(
        "a communication hook is already registered; compose hooks, or create a new "
        "DistributedDataParallel on the module");
  }
  return group_->Try("registering a communication hook", [&] {
    logger_->set_comm_hook(hook.name);
    reducer_->register_comm_hook(std::make_unique<HookAdapter>(std::move(hook), group_));
    has_hook_ = true;
    return absl::OkStatus();
  });
}

BucketLayout DdpCore::bucket_layout() const { return reducer_->layout(); }

void DdpCore::CheckLastBackwardFinished() const {
  if (!reducer_->unfinished()) return;
  const std::vector<int64_t> times = reducer_->get_backward_stats();
  std::vector<std::string> names;
  size_t missing = 0;
  for (size_t i = 0; i < names_.size(); ++i) {
    if (i < times.size() && i < ready_times_.size() && times[i] != ready_times_[i]) continue;
    if (++missing <= kNamesInErrors) names.push_back(absl::StrCat("\"", names_[i], "\""));
  }
  TORCH_CHECK(missing > 0,
              "the last backward pass did not finish, because of an error or because backward ran more than once after "
              "one forward; create a new DistributedDataParallel on the same module");
  TORCH_CHECK(false, missing, " of ", names_.size(),
              " parameters received no gradient in the last backward pass: ", absl::StrJoin(names, ", "),
              missing > kNamesInErrors ? ", ..." : "",
              "; if forward does not always use all parameters, or the loss does not use all outputs, set "
              "DdpOptions::find_unused_parameters, or static_graph if the unused ones are the same in every iteration");
}

// Delays all reductions in the first iteration of a static graph. Unlike in Python, outputs that do not contribute to
// the loss are not counted as used, which would fail in the second iteration.
void DdpCore::DelayReductionToEndOfBackward(absl::Span<at::Tensor* const> outputs) {
  // Weak, because a graph that outlives the backward pass must not keep this object alive.
  const auto queue_once = [weak = weak_from_this()](const at::Tensor&) {
    const std::shared_ptr<DdpCore> core = weak.lock();
    if (core == nullptr || core->delay_all_reduce_queued_) return;
    core->delay_all_reduce_queued_ = true;
    torch::autograd::Engine::get_default_engine().queue_callback(
        [reducer = core->reducer_] { reducer->delay_all_reduce(); });
  };
  for (at::Tensor* output : WithGraph(outputs)) output->register_hook(queue_once);
}

bool DdpCore::BuffersNeedSync() const {
  return require_forward_param_sync && options_.broadcast_buffers && has_buffers_;
}

void DdpCore::BroadcastFromRankZero(const std::vector<at::Tensor>& tensors) const {
  at::NoGradGuard no_grad;
  c10d::broadcast_coalesced(group_->c10d(), tensors, kBroadcastBytes, /*rank=*/0);
}

// ---- the loss as a number ----

double LossOfThisRank(const at::Tensor& loss) { return loss.item<double>(); }

absl::StatusOr<double> LossAveragedOverRanks(const at::Tensor& loss, ProcessGroup& group) {
  constexpr absl::string_view kOperation = "averaging the loss";
  at::Tensor sum;
  DDPRUN_RETURN_IF_ERROR(group.Try(kOperation, [&] {
    sum = loss.detach().to(at::kDouble).reshape({1});
    // Must not be the caller's memory, if the loss is a double already.
    if (sum.is_alias_of(loss)) sum = sum.clone();
    return absl::OkStatus();
  }));
  DDPRUN_RETURN_IF_ERROR(group.AllReduce(sum));
  double mean = 0;
  // An earlier kernel failure on a GPU surfaces here, where the result is awaited.
  DDPRUN_RETURN_IF_ERROR(group.Try(kOperation, [&] {
    mean = sum.item<double>() / group.size();
    return absl::OkStatus();
  }));
  return mean;
}

}  // namespace ddprun
