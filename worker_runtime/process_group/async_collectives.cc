#include "worker_runtime/process_group/async_collectives.h"

#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "worker_runtime/process_group/reduce_op.h"
#include "worker_runtime/process_group/tensor_checks.h"

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
    absl::Status status = group.Try(operation, [&] {
      state->work = start(*group.c10d());
      return absl::OkStatus();
    });
    if (!status.ok()) return status;
    return Work(std::move(state));
  }
};

namespace {

// Gloo has no average: it sums, and Wait divides.
c10d::ReduceOp SumFor(ReduceOp op) { return ToC10d(op == ReduceOp::kAverage ? ReduceOp::kSum : op); }

}  // namespace

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
  if (absl::Status status = CheckTensor(kOperation, tensor); !status.ok()) return status;
  if (absl::Status status = CheckOp(kOperation, tensor, op); !status.ok()) return status;
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
  if (absl::Status status = CheckTensor(kOperation, tensor); !status.ok()) return status;
  if (root < 0 || root >= group.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("broadcast: root ", root, " is out of range for ", group.size(), " ranks"));
  }
  return WorkMaker::Make(group, kOperation, [&](c10d::ProcessGroup& c10d) {
    std::vector<at::Tensor> tensors = {tensor};
    c10d::BroadcastOptions options;
    options.rootRank = root;
    return c10d.broadcast(tensors, options);
  });
}

absl::StatusOr<Work> AsyncAllGatherIntoTensor(ProcessGroup& group, at::Tensor output, const at::Tensor& input) {
  constexpr absl::string_view kOperation = "all_gather_into_tensor";
  if (absl::Status status = CheckParts(kOperation, output, input, group.size()); !status.ok()) return status;
  return WorkMaker::Make(group, kOperation, [&](c10d::ProcessGroup& c10d) {
    at::Tensor in = input;
    return c10d._allgather_base(output, in);
  });
}

absl::StatusOr<Work> AsyncReduceScatterTensor(ProcessGroup& group, at::Tensor output, const at::Tensor& input,
                                              ReduceOp op) {
  constexpr absl::string_view kOperation = "reduce_scatter_tensor";
  if (absl::Status status = CheckParts(kOperation, input, output, group.size()); !status.ok()) return status;
  if (absl::Status status = CheckOp(kOperation, input, op); !status.ok()) return status;
  const auto start = [&](c10d::ProcessGroup& c10d) {
    at::Tensor in = input;
    c10d::ReduceScatterOptions options;
    options.reduceOp = SumFor(op);
    return c10d._reduce_scatter_base(output, in, options);
  };
  return WorkMaker::Make(group, kOperation, start, op == ReduceOp::kAverage ? output : at::Tensor());
}

absl::StatusOr<Work> AsyncSend(ProcessGroup& group, const at::Tensor& tensor, int to, int tag) {
  if (absl::Status status = CheckSendable("send", group, tensor); !status.ok()) return status;
  if (absl::Status status = CheckPeer("send", group, to); !status.ok()) return status;
  return WorkMaker::Make(group, "send", [&](c10d::ProcessGroup& c10d) {
    std::vector<at::Tensor> tensors = {tensor};
    return c10d.send(tensors, to, tag);
  });
}

absl::StatusOr<Work> AsyncRecv(ProcessGroup& group, at::Tensor tensor, int from, int tag) {
  if (absl::Status status = CheckSendable("recv", group, tensor); !status.ok()) return status;
  if (absl::Status status = CheckPeer("recv", group, from); !status.ok()) return status;
  return WorkMaker::Make(group, "recv", [&](c10d::ProcessGroup& c10d) {
    std::vector<at::Tensor> tensors = {tensor};
    return c10d.recv(tensors, from, tag);
  });
}

}  // namespace ddprun
