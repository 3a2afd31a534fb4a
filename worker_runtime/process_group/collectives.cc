#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker_runtime/process_group/process_group.h"
#include "worker_runtime/process_group/process_group_impl.h"
#include "worker_runtime/process_group/reduce_op.h"

// Operations of a process group.
namespace ddprun {
namespace {

constexpr int64_t kMaxTextBytes = 64 << 20;

// Rejects tensors for which a backend would give a less clear error, or end the process.
absl::Status CheckTensor(absl::string_view operation, const at::Tensor& tensor) {
  const auto refuse = [&](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat(operation, ": the tensor ", why));
  };
  if (!tensor.defined()) return refuse("is undefined");
  if (tensor.layout() != at::kStrided) return refuse("is sparse; pass tensor.to_dense()");
  if (!tensor.is_non_overlapping_and_dense())
    return refuse("is not non-overlapping and dense; pass tensor.contiguous()");
  return absl::OkStatus();
}

absl::Status CheckRoot(absl::string_view operation, int root, int size) {
  if (root >= 0 && root < size) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(operation, ": root ", root, " is out of range for ", size, " ranks"));
}

}  // namespace

absl::Status ProcessGroup::Barrier(std::optional<absl::Duration> timeout) {
  const absl::Duration limit = timeout.value_or(this->timeout());
  return impl_->Try("barrier", limit, [&]() -> absl::Status {
    c10d::BarrierOptions options;
    options.timeout = absl::ToChronoMilliseconds(limit);
    if (impl_->cuda_device.is_cuda()) options.device = impl_->cuda_device;
    const c10::intrusive_ptr<c10d::Backend> backend = c10d()->getDefaultBackend();
    backend->barrier(options)->wait();
    return absl::OkStatus();
  });
}

absl::Status ProcessGroup::AllReduce(at::Tensor tensor, ReduceOp op) {
  if (absl::Status status = CheckTensor("all_reduce", tensor); !status.ok()) return status;
  if (op == ReduceOp::kAverage && !tensor.is_floating_point()) {
    return absl::InvalidArgumentError("all_reduce: kAverage requires a floating-point tensor");
  }
  return Try("all_reduce", [&] {
    std::vector<at::Tensor> tensors = {tensor};
    c10d::AllreduceOptions options;
    // Gloo has no average.
    const bool divide =
        op == ReduceOp::kAverage && c10d()->getBackend(tensor.device().type())->getBackendName() != "nccl";
    options.reduceOp = ToC10d(divide ? ReduceOp::kSum : op);
    c10d()->allreduce(tensors, options)->wait();
    if (divide) tensor.div_(size());
    return absl::OkStatus();
  });
}

absl::Status ProcessGroup::Broadcast(at::Tensor tensor, int root) {
  if (absl::Status status = CheckTensor("broadcast", tensor); !status.ok()) return status;
  if (absl::Status status = CheckRoot("broadcast", root, size()); !status.ok()) return status;
  return Try("broadcast", [&] {
    std::vector<at::Tensor> tensors = {tensor};
    c10d::BroadcastOptions options;
    options.rootRank = root;
    c10d()->broadcast(tensors, options)->wait();
    return absl::OkStatus();
  });
}

absl::StatusOr<std::vector<at::Tensor>> ProcessGroup::AllGather(const at::Tensor& tensor) {
  if (absl::Status status = CheckTensor("all_gather", tensor); !status.ok()) return status;
  std::vector<std::vector<at::Tensor>> outputs(1);
  absl::Status status = Try("all_gather", [&] {
    for (int i = 0; i < size(); ++i) outputs[0].push_back(at::empty_like(tensor));
    std::vector<at::Tensor> inputs = {tensor};
    c10d()->allgather(outputs, inputs)->wait();
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return std::move(outputs[0]);
}

absl::StatusOr<std::string> ProcessGroup::BroadcastText(std::string text, int root) {
  if (absl::Status status = CheckRoot("broadcast of a text", root, size()); !status.ok()) return status;
  // The root's length is checked on all ranks, so that all of them fail if its text is too long.
  int64_t bytes = rank() == root ? static_cast<int64_t>(text.size()) : 0;
  absl::Status status = Try("broadcast of a text", [&]() -> absl::Status {
    const c10::Device device = this->device();
    const auto options = at::TensorOptions().device(device);
    at::Tensor length = at::full({1}, bytes, options.dtype(at::kLong));
    if (absl::Status sent = Broadcast(length, root); !sent.ok()) return sent;
    bytes = length.item<int64_t>();
    if (bytes > kMaxTextBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("a text of ", bytes, " bytes is too long to broadcast; the limit is ", kMaxTextBytes));
    }
    if (bytes == 0) {
      text.clear();
      return absl::OkStatus();
    }
    text.resize(bytes);
    const at::Tensor view = at::from_blob(text.data(), {bytes}, at::kByte);
    const at::Tensor buffer = device.is_cpu() ? view : view.to(device);
    if (absl::Status sent = Broadcast(buffer, root); !sent.ok()) return sent;
    if (!device.is_cpu()) view.copy_(buffer);
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return text;
}

}  // namespace ddprun
