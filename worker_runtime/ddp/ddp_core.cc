#include "worker_runtime/ddp/ddp_core.h"

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "worker_runtime/base/non_restartable.h"
#include "worker_runtime/base/torch_try.h"
#include "worker_runtime/ddp/all_reduce_speed.h"
#include "worker_runtime/ddp/bucket_policy.h"
#include "worker_runtime/ddp/ddp_state.h"
#include "worker_runtime/ddp/model_description.h"
#include "worker_runtime/ddp/output_sink.h"
#include "worker_runtime/ddp/shared_memory_all_reduce.h"
#include "worker_runtime/ddp/zero_gradients.h"
#include "worker_runtime/process_group/agreement.h"

namespace ddprun {
namespace {

constexpr size_t kNamesInErrors = 5;

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

// Collective. Returns OK if all ranks have rank 0's model and options.
// Errors, the same message on all ranks: InvalidArgument has the first difference, with the shapes (dtypes, names) of
// rank 0 and of the lowest rank that differs. Otherwise those of ProcessGroup's operations.
absl::Status CheckAllRanksAgree(const ModelDescription& description, ProcessGroup& group) {
  if (group.size() == 1) return absl::OkStatus();
  absl::StatusOr<std::string> text = group.BroadcastText(EncodeDescription(description), 0);
  if (!text.ok()) return text.status();
  absl::StatusOr<ModelDescription> of_rank0 = DecodeDescription(*text);
  if (!of_rank0.ok()) return of_rank0.status();
  // All ranks return the difference found by the lowest rank that differs.
  const std::string difference = FirstDifference(*of_rank0, 0, description, group.rank());
  return OutcomeOfAll(&group, difference.empty() ? absl::OkStatus() : absl::InvalidArgumentError(difference));
}

void MakeReducerAndLogger(DdpState& state) {
  const BucketLimits limits = ChooseBucketLimits(state.options);
  ReducerArguments arguments;
  if (state.options.initial_bucket_layout.has_value()) {
    arguments.buckets = *state.options.initial_bucket_layout;
  } else {
    arguments.buckets = std::get<0>(
        c10d::compute_bucket_assignment_by_size(state.trained.tensors, limits.initial, state.trained.sparse));
    // Gradients become ready roughly in the reverse order of the parameters' definition.
    std::reverse(arguments.buckets.begin(), arguments.buckets.end());
  }
  for (size_t i = 0; i < state.trained.names.size(); ++i) arguments.names[i] = state.trained.names[i];
  arguments.parameters = state.trained.tensors;
  arguments.group = state.group->c10d();
  arguments.sparse = state.trained.sparse;
  arguments.cap_bytes = limits.cap_bytes;
  arguments.first_bytes = limits.first_bytes;
  arguments.find_unused_parameters = state.options.find_unused_parameters;
  arguments.gradient_as_bucket_view = state.options.gradient_as_bucket_view;
  state.reducer = MakeReducer(std::move(arguments));
  state.logger = std::make_shared<c10d::Logger>(state.reducer);
  state.reducer->set_logger(state.logger);
  {
    // The logger takes a backend of the name "gloo" for a ProcessGroupGloo. Here one always wraps that, and LibTorch's
    // own wrapper of TORCH_DISTRIBUTED_DEBUG=DETAIL, in Python as well, ends the process.
    c10d::ProcessGroup& group = *state.group->c10d();
    const auto restore = absl::MakeCleanup([&group, type = group.getBackendType()] { group.setDefaultBackend(type); });
    group.setDefaultBackend(c10d::ProcessGroup::BackendType::CUSTOM);
    state.logger->set_construction_data_and_log(state.module->name(), /*device_ids=*/{}, /*output_device=*/-1,
                                                state.options.broadcast_buffers, /*has_sync_bn=*/false,
                                                state.options.static_graph);
  }
  if (state.options.static_graph) {
    state.reducer->set_static_graph();
    state.logger->set_static_graph();
  }
}

// The reducer would report this too, but without the parameters' names.
void CheckLastBackwardFinished(const DdpState& state) {
  if (!state.reducer->unfinished()) return;
  const std::vector<int64_t> times = state.reducer->get_backward_stats();
  std::vector<std::string> names;
  size_t missing = 0;
  for (size_t i = 0; i < state.trained.names.size(); ++i) {
    if (i < times.size() && i < state.ready_times.size() && times[i] != state.ready_times[i]) continue;
    if (++missing <= kNamesInErrors) names.push_back(absl::StrCat("\"", state.trained.names[i], "\""));
  }
  TORCH_CHECK(missing > 0,
              "the last backward pass did not finish, because of an error or because backward ran more than once after "
              "one forward; create a new DistributedDataParallel on the same module");
  TORCH_CHECK(false, missing, " of ", state.trained.names.size(),
              " parameters received no gradient in the last backward pass: ", absl::StrJoin(names, ", "),
              missing > kNamesInErrors ? ", ..." : "",
              "; if forward does not always use all parameters, or the loss does not use all outputs, set "
              "DdpOptions::find_unused_parameters, or static_graph if the unused ones are the same in every iteration");
}

bool FitsSharedMemory(const TrainedParameters& trained) {
  return std::all_of(trained.tensors.begin(), trained.tensors.end(), [](const at::Tensor& tensor) {
    return tensor.is_cpu() && SharedMemoryAllReduce::Supports(tensor.scalar_type());
  });
}

// Returns nullptr if a rank can't use it.
absl::StatusOr<std::shared_ptr<SharedMemoryAllReduce>> ShareMemory(const DdpState& state) {
  absl::Status possible = absl::OkStatus();
  if (!FitsSharedMemory(state.trained)) possible = absl::FailedPreconditionError("the parameters are not on the CPU");
  possible = OutcomeOfAll(state.group.get(), possible);
  absl::StatusOr<std::shared_ptr<SharedMemoryAllReduce>> shared(nullptr);
  if (possible.ok()) shared = SharedMemoryAllReduce::Create(state.group);
  if (absl::IsFailedPrecondition(possible) || absl::IsFailedPrecondition(shared.status())) return nullptr;
  return possible.ok() ? shared : possible;
}

absl::Status MeasureBucketCap(DdpState& state) {
  int64_t bytes = 0;
  for (const at::Tensor& parameter : state.trained.tensors) bytes += static_cast<int64_t>(parameter.nbytes());
  const absl::StatusOr<AllReduceSpeed> speed = MeasureAllReduce(*state.group, state.device(), bytes);
  if (!speed.ok()) return speed.status();
  state.options.bucket_cap_mb = ChooseBucketCapMb(bytes, *speed);
  return absl::OkStatus();
}

absl::Status CheckModule(const torch::nn::Module& module, const TrainedParameters& trained) {
  if (trained.tensors.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("module ", module.name(),
                     " has no parameter that requires a gradient; use it without DistributedDataParallel"));
  }
  return absl::OkStatus();
}

}  // namespace

DdpCore::DdpCore(std::shared_ptr<DdpState> state) : state_(std::move(state)) {}
DdpCore::~DdpCore() = default;

absl::StatusOr<std::unique_ptr<DdpCore>> DdpCore::Create(std::shared_ptr<torch::nn::Module> module,
                                                         std::shared_ptr<ProcessGroup> group,
                                                         const DdpOptions& options) {
  if (module == nullptr || group == nullptr) {
    return absl::InvalidArgumentError("DistributedDataParallel requires a module and a process group, got nullptr");
  }
  auto state = std::make_shared<DdpState>();
  state->module = std::move(module);
  state->group = std::move(group);
  state->options = options;
  absl::Status status = state->group->Try("DistributedDataParallel", [&state]() -> absl::Status {
    state->trained = CollectTrainedParameters(*state->module);
    if (absl::Status checked = CheckModule(*state->module, state->trained); !checked.ok()) return checked;
    if (absl::Status checked = CheckDdpOptions(state->options, state->trained.tensors.size()); !checked.ok()) {
      return checked;
    }
    state->has_buffers = !CollectBuffers(*state->module).empty();
    if (state->options.init_sync) {
      const ModelDescription description = DescribeModule(*state->module, state->options);
      absl::Status agreed = CheckAllRanksAgree(description, *state->group);
      if (!agreed.ok()) return agreed;
      BroadcastModule(*state, 0);
    }
    if (state->options.measure_bucket_cap && state->group->size() > 1) {
      if (absl::Status measured = MeasureBucketCap(*state); !measured.ok()) return measured;
    }
    MakeReducerAndLogger(*state);
    state->forward_check.emplace(state->trained, [weak = std::weak_ptr<DdpState>(state)] {
      const std::shared_ptr<DdpState> state = weak.lock();
      return state == nullptr || state->reducer->expects_gradients() || !state->require_backward_grad_sync ||
             state->last_forward_was_local;
    });
    return absl::OkStatus();
  });
  // A wrong option, or models that differ between the ranks: a restart makes the same.
  if (absl::IsInvalidArgument(status)) return NonRestartable(status);
  if (!status.ok()) return status;
  std::unique_ptr<DdpCore> core(new DdpCore(std::move(state)));
  if (!options.shared_memory || core->group()->size() == 1) return core;
  absl::StatusOr<std::shared_ptr<SharedMemoryAllReduce>> shared = ShareMemory(*core->state_);
  if (!shared.ok()) return shared.status();
  if (*shared == nullptr) return core;
  if (status = core->RegisterCommHook((*shared)->Hook()); !status.ok()) return status;
  return core;
}

void DdpCore::PreForward() {
  DdpState& state = *state_;
  const bool with_grad = at::GradMode::is_enabled();
  if (with_grad) CheckLastBackwardFinished(state);
  if (with_grad && state.require_backward_grad_sync) {
    // The previous step used gradients that NCCL may have left half-reduced.
    ThrowIfError(state.group->Health());
    state.logger->set_runtime_stats_and_log();
    state.reducer->prepare_for_forward();
  }
  if (with_grad) state.reducer->rebuild_buckets();
  if (BuffersNeedSync(state)) BroadcastBuffers(state, 0);
}

void DdpCore::PostForward(absl::Span<at::Tensor* const> outputs) {
  DdpState& state = *state_;
  const DdpOptions& options = state.options;
  const bool finds_unused = options.find_unused_parameters && !options.static_graph;
  if (at::GradMode::is_enabled() && state.require_backward_grad_sync) {
    state.require_forward_param_sync = true;
    state.last_forward_was_local = false;
    std::vector<at::Tensor> roots;
    if (finds_unused) {
      for (const at::Tensor* output : outputs) {
        if (output->defined()) roots.push_back(*output);
      }
    }
    state.reducer->prepare_for_backward(roots);
    state.ready_times = state.reducer->get_backward_stats();
  } else {
    state.require_forward_param_sync = false;
    state.last_forward_was_local = at::GradMode::is_enabled();
  }
  if (finds_unused) ApplyOutputSink(outputs);
  if (options.static_graph && !state.delay_all_reduce_queued) DelayReductionToEndOfBackward(state_, outputs);
}

void DdpCore::FinishBackward() {
  DdpState& state = *state_;
  CheckLastBackwardFinished(state);
  state.reducer->rebuild_buckets();
  if (!BuffersNeedSync(state)) return;
  BroadcastBuffers(state, 0);
  state.require_forward_param_sync = false;
}

void DdpCore::ZeroGrad(bool set_to_none) { ZeroGradients(state_->trained.tensors, set_to_none); }

absl::Status DdpCore::RegisterCommHook(CommHook hook) {
  if (state_->has_hook) {
    return absl::FailedPreconditionError(
        "a communication hook is already registered; compose hooks, or create a new "
        "DistributedDataParallel on the module");
  }
  return state_->group->Try("registering a communication hook", [&] {
    state_->logger->set_comm_hook(hook.name);
    state_->reducer->register_comm_hook(std::make_unique<HookAdapter>(std::move(hook), state_->group));
    state_->has_hook = true;
    return absl::OkStatus();
  });
}

BucketLayout DdpCore::bucket_layout() const { return state_->reducer->layout(); }
std::optional<double> DdpCore::bucket_cap_mb() const { return state_->options.bucket_cap_mb; }
bool DdpCore::require_backward_grad_sync() const { return state_->require_backward_grad_sync; }
void DdpCore::set_require_backward_grad_sync(bool value) { state_->require_backward_grad_sync = value; }
bool DdpCore::require_forward_param_sync() const { return state_->require_forward_param_sync; }
void DdpCore::set_require_forward_param_sync(bool value) { state_->require_forward_param_sync = value; }
const std::shared_ptr<ProcessGroup>& DdpCore::group() const { return state_->group; }

}  // namespace ddprun
