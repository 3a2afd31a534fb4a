#include "worker_runtime/process_group/collectives.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>

#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "worker_runtime/process_group/backend_choice.h"
#include "worker_runtime/process_group/c10d_operations.h"

// Also has the operations of ProcessGroup, except for Barrier.
namespace ddprun {

struct Work::State {
  std::shared_ptr<ProcessGroup> group;
  std::string operation;
  c10::intrusive_ptr<c10d::Work> work;
  at::Tensor to_divide;  // divided by the number of ranks in Wait; undefined: none
  std::optional<absl::Status> outcome;
};

class WorkMaker {
 public:
  using C10dWork = c10::intrusive_ptr<c10d::Work>;

  // `start` may throw.
  static absl::StatusOr<Work> Make(ProcessGroup& group, absl::string_view operation,
                                   absl::FunctionRef<C10dWork(c10d::ProcessGroup& c10d)> start,
                                   at::Tensor to_divide = at::Tensor()) {
    auto state = std::make_unique<Work::State>();
    state->group = group.shared_from_this();
    state->operation = std::string(operation);
    state->to_divide = std::move(to_divide);
    DDPRUN_RETURN_IF_ERROR(group.Try(operation, [&] {
      state->work = start(*group.c10d());
      return absl::OkStatus();
    }));
    return Work(std::move(state));
  }
};

namespace {

constexpr int64_t kMaxTextBytes = 64 << 20;

// ---- checks of arguments that a backend would reject with a less clear error, or by ending the process ----

absl::Status Refuse(absl::string_view operation, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(operation, ": ", why));
}

absl::Status CheckDense(absl::string_view operation, const at::Tensor& tensor) {
  if (!tensor.defined()) return Refuse(operation, "the tensor is undefined");
  if (tensor.layout() != at::kStrided) return Refuse(operation, "the tensor is sparse; pass tensor.to_dense()");
  if (tensor.is_non_overlapping_and_dense()) return absl::OkStatus();
  return Refuse(operation, "the tensor is not non-overlapping and dense; pass tensor.contiguous()");
}

absl::Status CheckContiguous(absl::string_view operation, const at::Tensor& tensor) {
  if (!tensor.defined()) return Refuse(operation, "a tensor is undefined");
  if (tensor.layout() == at::kStrided && tensor.is_contiguous()) return absl::OkStatus();
  return Refuse(operation, "a tensor is not contiguous; pass tensor.contiguous()");
}

std::string ShapeOf(const at::Tensor& tensor) { return absl::StrCat("[", absl::StrJoin(tensor.sizes(), ", "), "]"); }

// Requires that `whole` consists of `parts` tensors like `part`, concatenated in the first dimension.
absl::Status CheckParts(absl::string_view operation, const at::Tensor& whole, const at::Tensor& part, int parts) {
  DDPRUN_RETURN_IF_ERROR(CheckContiguous(operation, whole));
  DDPRUN_RETURN_IF_ERROR(CheckContiguous(operation, part));
  const bool fits = whole.dim() > 0 && part.dim() == whole.dim() && whole.size(0) == parts * part.size(0) &&
                    whole.sizes().slice(1) == part.sizes().slice(1) && whole.dtype() == part.dtype() &&
                    whole.device() == part.device();
  if (fits) return absl::OkStatus();
  return Refuse(
      operation,
      absl::StrCat("shapes ", ShapeOf(whole), " and ", ShapeOf(part), " do not match for ", parts,
                   " ranks; the first dimension of one must be that many times the other's, with the same dtype and "
                   "device"));
}

absl::Status CheckRoot(absl::string_view operation, int root, int size) {
  if (root >= 0 && root < size) return absl::OkStatus();
  return Refuse(operation, absl::StrCat("root ", root, " is out of range for ", size, " ranks"));
}

absl::Status CheckPeer(absl::string_view operation, const ProcessGroup& group, int peer) {
  if (peer >= 0 && peer < group.size() && peer != group.rank()) return absl::OkStatus();
  return Refuse(operation, absl::StrCat("rank ", peer, " is not another rank of this group of size ", group.size()));
}

// Gloo's send and recv end the process if the tensor is not on the CPU.
absl::Status CheckSendable(absl::string_view operation, const ProcessGroup& group, const at::Tensor& tensor) {
  DDPRUN_RETURN_IF_ERROR(CheckContiguous(operation, tensor));
  const absl::StatusOr<BackendChoice> choice = ParseBackendChoice(group.backend(), tensor.is_cuda());
  if (tensor.is_cpu() || !choice.ok() || !choice->gloo_for_cuda) return absl::OkStatus();
  return Refuse(operation, absl::StrCat("Gloo can't ", operation, " a tensor of ", tensor.device().str(),
                                        "; pass tensor.cpu(), or use NCCL"));
}

absl::Status CheckOp(absl::string_view operation, const at::Tensor& tensor, ReduceOp op) {
  if (op != ReduceOp::kAverage || tensor.is_floating_point()) return absl::OkStatus();
  return Refuse(operation, "kAverage requires a floating-point tensor");
}

// ---- reductions ----

// kAverage becomes AVG, which Gloo does not have.
c10d::ReduceOp ToC10d(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum: return c10d::ReduceOp::SUM;
    case ReduceOp::kAverage: return c10d::ReduceOp::AVG;
    case ReduceOp::kMin: return c10d::ReduceOp::MIN;
    case ReduceOp::kMax: return c10d::ReduceOp::MAX;
    case ReduceOp::kProduct: return c10d::ReduceOp::PRODUCT;
  }
  return c10d::ReduceOp::SUM;
}

// An average is summed on both backends, and Wait divides.
c10d::ReduceOp SumFor(ReduceOp op) { return ToC10d(op == ReduceOp::kAverage ? ReduceOp::kSum : op); }

absl::Status Finish(absl::StatusOr<Work> work) { return work.ok() ? work->Wait() : work.status(); }

// Passes `value` as a tensor of one element to `communicate`. The result is read inside Try, because a GPU's errors
// surface there.
template <typename T>
absl::StatusOr<T> Exchange(ProcessGroup& group, absl::string_view operation, T value, at::ScalarType dtype,
                           absl::FunctionRef<absl::Status(at::Tensor)> communicate) {
  T result = value;
  DDPRUN_RETURN_IF_ERROR(group.Try(operation, [&]() -> absl::Status {
    const at::Tensor tensor = at::full({1}, value, at::TensorOptions(dtype).device(group.device()));
    DDPRUN_RETURN_IF_ERROR(communicate(tensor));
    result = tensor.item<T>();
    return absl::OkStatus();
  }));
  return result;
}

template <typename T>
absl::StatusOr<T> Reduce(ProcessGroup& group, T value, at::ScalarType dtype, ReduceOp op) {
  return Exchange<T>(group, "all_reduce of a value", value, dtype,
                     [&](at::Tensor tensor) { return group.AllReduce(tensor, op); });
}

template <typename T>
absl::StatusOr<T> Spread(ProcessGroup& group, T value, at::ScalarType dtype, int root) {
  return Exchange<T>(group, "broadcast of a value", value, dtype,
                     [&](at::Tensor tensor) { return group.Broadcast(tensor, root); });
}

absl::StatusOr<bool> Combine(ProcessGroup& group, bool flag, ReduceOp op) {
  DDPRUN_ASSIGN_OR_RETURN(const int64_t value, AllReduceValue(group, static_cast<int64_t>(flag), op));
  return value != 0;
}

}  // namespace

// ---- ProcessGroup ----

absl::Status ProcessGroup::AllReduce(at::Tensor tensor, ReduceOp op) {
  DDPRUN_RETURN_IF_ERROR(CheckDense("all_reduce", tensor));
  DDPRUN_RETURN_IF_ERROR(CheckOp("all_reduce", tensor, op));
  return Try("all_reduce", [&] {
    std::vector<at::Tensor> tensors = {tensor};
    c10d::AllreduceOptions options;
    // Gloo has no average.
    const bool divide =
        op == ReduceOp::kAverage && c10d()->getBackend(tensor.device().type())->getBackendName() != "nccl";
    options.reduceOp = divide ? SumFor(op) : ToC10d(op);
    c10d()->allreduce(tensors, options)->wait();
    if (divide) tensor.div_(size());
    return absl::OkStatus();
  });
}

absl::Status ProcessGroup::Broadcast(at::Tensor tensor, int root) {
  DDPRUN_RETURN_IF_ERROR(CheckDense("broadcast", tensor));
  DDPRUN_RETURN_IF_ERROR(CheckRoot("broadcast", root, size()));
  return Try("broadcast", [&] {
    std::vector<at::Tensor> tensors = {tensor};
    c10d::BroadcastOptions options;
    options.rootRank = root;
    c10d()->broadcast(tensors, options)->wait();
    return absl::OkStatus();
  });
}

absl::StatusOr<std::vector<at::Tensor>> ProcessGroup::AllGather(const at::Tensor& tensor) {
  DDPRUN_RETURN_IF_ERROR(CheckDense("all_gather", tensor));
  std::vector<std::vector<at::Tensor>> outputs(1);
  DDPRUN_RETURN_IF_ERROR(Try("all_gather", [&] {
    for (int i = 0; i < size(); ++i) outputs[0].push_back(at::empty_like(tensor));
    std::vector<at::Tensor> inputs = {tensor};
    c10d()->allgather(outputs, inputs)->wait();
    return absl::OkStatus();
  }));
  return std::move(outputs[0]);
}

absl::StatusOr<std::string> ProcessGroup::BroadcastText(std::string text, int root) {
  DDPRUN_RETURN_IF_ERROR(CheckRoot("broadcast of a text", root, size()));
  // The root's length is checked on all ranks, so that all of them fail if its text is too long.
  int64_t bytes = rank() == root ? static_cast<int64_t>(text.size()) : 0;
  DDPRUN_RETURN_IF_ERROR(Try("broadcast of a text", [&]() -> absl::Status {
    const c10::Device device = this->device();
    const at::Tensor length = at::full({1}, bytes, at::TensorOptions().device(device).dtype(at::kLong));
    DDPRUN_RETURN_IF_ERROR(Broadcast(length, root));
    bytes = length.item<int64_t>();
    if (bytes > kMaxTextBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("a text of ", bytes, " bytes is too long to broadcast; the limit is ", kMaxTextBytes));
    }
    text.resize(bytes);
    if (bytes == 0) return absl::OkStatus();
    const at::Tensor view = at::from_blob(text.data(), {bytes}, at::kByte);
    const at::Tensor buffer = device.is_cpu() ? view : view.to(device);
    DDPRUN_RETURN_IF_ERROR(Broadcast(buffer, root));
    if (!device.is_cpu()) view.copy_(buffer);
    return absl::OkStatus();
  }));
  return text;
}

// ---- operations with a handle ----

Work::Work(std::unique_ptr<State> state) : state_(std::move(state)) {}
Work::Work(Work&& other) noexcept = default;
Work& Work::operator=(Work&& other) noexcept = default;
Work::~Work() = default;

absl::Status Work::Wait() {
  State& state = *state_;
  if (!state.outcome.has_value()) {
    state.outcome = state.group->Try(state.operation, [&] {
      state.work->wait();
      if (state.to_divide.defined()) state.to_divide.div_(state.group->size());
      return absl::OkStatus();
    });
  }
  return *state.outcome;
}

bool Work::IsCompleted() const { return state_->outcome.has_value() || state_->work->isCompleted(); }

absl::StatusOr<Work> AsyncAllReduce(ProcessGroup& group, at::Tensor tensor, ReduceOp op) {
  constexpr absl::string_view kOperation = "all_reduce";
  DDPRUN_RETURN_IF_ERROR(CheckContiguous(kOperation, tensor));
  DDPRUN_RETURN_IF_ERROR(CheckOp(kOperation, tensor, op));
  const auto start = [&](c10d::ProcessGroup& c10d) {
    std::vector<at::Tensor> tensors = {tensor};
    c10d::AllreduceOptions options;
    options.reduceOp = SumFor(op);
    return c10d.allreduce(tensors, options);
  };
  return WorkMaker::Make(group, kOperation, start, op == ReduceOp::kAverage ? tensor : at::Tensor());
}

absl::StatusOr<Work> AsyncBroadcast(ProcessGroup& group, at::Tensor tensor, int root) {
  constexpr absl::string_view kOperation = "broadcast";
  DDPRUN_RETURN_IF_ERROR(CheckContiguous(kOperation, tensor));
  DDPRUN_RETURN_IF_ERROR(CheckRoot(kOperation, root, group.size()));
  return WorkMaker::Make(group, kOperation, [&](c10d::ProcessGroup& c10d) {
    std::vector<at::Tensor> tensors = {tensor};
    c10d::BroadcastOptions options;
    options.rootRank = root;
    return c10d.broadcast(tensors, options);
  });
}

absl::StatusOr<Work> AsyncAllGatherIntoTensor(ProcessGroup& group, at::Tensor output, const at::Tensor& input) {
  constexpr absl::string_view kOperation = "all_gather_into_tensor";
  DDPRUN_RETURN_IF_ERROR(CheckParts(kOperation, output, input, group.size()));
  return WorkMaker::Make(group, kOperation, [&](c10d::ProcessGroup& c10d) {
    at::Tensor in = input;
    return c10d.DDPRUN_C10D_NAME(all_gather_single, _allgather_base)(output, in);
  });
}

absl::StatusOr<Work> AsyncReduceScatterTensor(ProcessGroup& group, at::Tensor output, const at::Tensor& input,
                                              ReduceOp op) {
  constexpr absl::string_view kOperation = "reduce_scatter_tensor";
  DDPRUN_RETURN_IF_ERROR(CheckParts(kOperation, input, output, group.size()));
  DDPRUN_RETURN_IF_ERROR(CheckOp(kOperation, input, op));
  const auto start = [&](c10d::ProcessGroup& c10d) {
    at::Tensor in = input;
    c10d::ReduceScatterOptions options;
    options.reduceOp = SumFor(op);
    return c10d.DDPRUN_C10D_NAME(reduce_scatter_single, _reduce_scatter_base)(output, in, options);
  };
  return WorkMaker::Make(group, kOperation, start, op == ReduceOp::kAverage ? output : at::Tensor());
}

absl::StatusOr<Work> AsyncSend(ProcessGroup& group, const at::Tensor& tensor, int to, int tag) {
  DDPRUN_RETURN_IF_ERROR(CheckSendable("send", group, tensor));
  DDPRUN_RETURN_IF_ERROR(CheckPeer("send", group, to));
  return WorkMaker::Make(group, "send", [&](c10d::ProcessGroup& c10d) {
    std::vector<at::Tensor> tensors = {tensor};
    return c10d.send(tensors, to, tag);
  });
}

absl::StatusOr<Work> AsyncRecv(ProcessGroup& group, at::Tensor tensor, int from, int tag) {
  DDPRUN_RETURN_IF_ERROR(CheckSendable("recv", group, tensor));
  DDPRUN_RETURN_IF_ERROR(CheckPeer("recv", group, from));
  return WorkMaker::Make(group, "recv", [&](c10d::ProcessGroup& c10d) {
    std::vector<at::Tensor> tensors = {tensor};
    return c10d.recv(tensors, from, tag);
  });
}

// ---- operations on one tensor ----

absl::Status AllGatherIntoTensor(ProcessGroup& group, at::Tensor output, const at::Tensor& input) {
  return Finish(AsyncAllGatherIntoTensor(group, output, input));
}

absl::Status ReduceScatterTensor(ProcessGroup& group, at::Tensor output, const at::Tensor& input, ReduceOp op) {
  return Finish(AsyncReduceScatterTensor(group, output, input, op));
}

absl::Status AllToAllSingle(ProcessGroup& group, at::Tensor output, const at::Tensor& input) {
  constexpr absl::string_view kOperation = "all_to_all_single";
  DDPRUN_RETURN_IF_ERROR(CheckParts(kOperation, output, input, 1));
  if (input.size(0) % group.size() != 0) {
    return Refuse(kOperation, absl::StrCat("the first dimension of ", ShapeOf(input), " is not a multiple of the ",
                                           group.size(), " ranks"));
  }
  return group.Try(kOperation, [&] {
    at::Tensor received = output, sent = input;
    std::vector<int64_t> equal;
    group.c10d()->DDPRUN_C10D_NAME(all_to_all_single, alltoall_base)(received, sent, equal, equal)->wait();
    return absl::OkStatus();
  });
}

absl::Status Send(ProcessGroup& group, const at::Tensor& tensor, int to, int tag) {
  return Finish(AsyncSend(group, tensor, to, tag));
}

absl::Status Recv(ProcessGroup& group, at::Tensor tensor, int from, int tag) {
  return Finish(AsyncRecv(group, tensor, from, tag));
}

// ---- operations on a number or a flag ----

absl::StatusOr<double> AllReduceValue(ProcessGroup& group, double value, ReduceOp op) {
  return Reduce<double>(group, value, at::kDouble, op);
}

absl::StatusOr<int64_t> AllReduceValue(ProcessGroup& group, int64_t value, ReduceOp op) {
  return Reduce<int64_t>(group, value, at::kLong, op);
}

absl::StatusOr<bool> AnyRank(ProcessGroup& group, bool flag) { return Combine(group, flag, ReduceOp::kMax); }
absl::StatusOr<bool> AllRanks(ProcessGroup& group, bool flag) { return Combine(group, flag, ReduceOp::kMin); }

absl::StatusOr<double> BroadcastValue(ProcessGroup& group, double value, int root) {
  return Spread<double>(group, value, at::kDouble, root);
}

absl::StatusOr<int64_t> BroadcastValue(ProcessGroup& group, int64_t value, int root) {
  return Spread<int64_t>(group, value, at::kLong, root);
}

}  // namespace ddprun
