#include "worker_runtime/process_group/values.h"

#include <ATen/ops/full.h>

#include "absl/functional/function_ref.h"

namespace ddprun {
namespace {

// Passes `value` as a tensor of one element to `communicate`. The result is read inside Try, because a GPU's errors
// surface there.
template <typename T>
absl::StatusOr<T> Exchange(ProcessGroup& group, absl::string_view operation, T value, at::ScalarType dtype,
                           absl::FunctionRef<absl::Status(at::Tensor)> communicate) {
  T result = value;
  const absl::Status status = group.Try(operation, [&]() -> absl::Status {
    const at::Tensor tensor = at::full({1}, value, at::TensorOptions(dtype).device(group.device()));
    if (absl::Status sent = communicate(tensor); !sent.ok()) return sent;
    result = tensor.item<T>();
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return result;
}

template <typename T>
absl::StatusOr<T> Reduce(ProcessGroup& group, T value, at::ScalarType dtype, ReduceOp op) {
  return Exchange<T>(group, "all_reduce of a value", value, dtype,
                     [&](at::Tensor tensor) { return group.AllReduce(tensor, op); });
}

template <typename T>
absl::StatusOr<T> Send(ProcessGroup& group, T value, at::ScalarType dtype, int root) {
  return Exchange<T>(group, "broadcast of a value", value, dtype,
                     [&](at::Tensor tensor) { return group.Broadcast(tensor, root); });
}

absl::StatusOr<bool> Combine(ProcessGroup& group, bool flag, ReduceOp op) {
  absl::StatusOr<int64_t> value = AllReduceValue(group, static_cast<int64_t>(flag), op);
  if (!value.ok()) return value.status();
  return *value != 0;
}

}  // namespace

absl::StatusOr<double> AllReduceValue(ProcessGroup& group, double value, ReduceOp op) {
  return Reduce<double>(group, value, at::kDouble, op);
}

absl::StatusOr<int64_t> AllReduceValue(ProcessGroup& group, int64_t value, ReduceOp op) {
  return Reduce<int64_t>(group, value, at::kLong, op);
}

absl::StatusOr<bool> AnyRank(ProcessGroup& group, bool flag) { return Combine(group, flag, ReduceOp::kMax); }
absl::StatusOr<bool> AllRanks(ProcessGroup& group, bool flag) { return Combine(group, flag, ReduceOp::kMin); }

absl::StatusOr<double> BroadcastValue(ProcessGroup& group, double value, int root) {
  return Send<double>(group, value, at::kDouble, root);
}

absl::StatusOr<int64_t> BroadcastValue(ProcessGroup& group, int64_t value, int root) {
  return Send<int64_t>(group, value, at::kLong, root);
}

}  // namespace ddprun
