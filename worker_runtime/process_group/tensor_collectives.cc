#include "worker_runtime/process_group/tensor_collectives.h"

#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "worker_runtime/process_group/reduce_op.h"

namespace ddprun {
namespace {

std::string Shape(const at::Tensor& tensor) { return absl::StrCat("[", absl::StrJoin(tensor.sizes(), ", "), "]"); }

absl::Status CheckTensor(absl::string_view operation, const at::Tensor& tensor) {
  if (!tensor.defined()) return absl::InvalidArgumentError(absl::StrCat(operation, ": a tensor is undefined"));
  if (tensor.layout() == at::kStrided && tensor.is_contiguous()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(operation, ": a tensor is not contiguous; pass tensor.contiguous()"));
}

// `whole` consists of `parts` tensors like `part`, one after the other in the first dimension.
absl::Status CheckParts(absl::string_view operation, const at::Tensor& whole, const at::Tensor& part, int parts) {
  for (const at::Tensor& tensor : {whole, part}) {
    if (absl::Status status = CheckTensor(operation, tensor); !status.ok()) return status;
  }
  const bool fits = whole.dim() > 0 && part.dim() == whole.dim() && whole.size(0) == parts * part.size(0) &&
                    whole.sizes().slice(1) == part.sizes().slice(1) && whole.dtype() == part.dtype() &&
                    whole.device() == part.device();
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      operation, ": shapes ", Shape(whole), " and ", Shape(part), " do not fit for ", parts,
      " ranks; the first dimension of one must be that many times the other's, and dtype and device the same"));
}

absl::Status CheckPeer(absl::string_view operation, const ProcessGroup& group, int peer) {
  if (peer >= 0 && peer < group.size() && peer != group.rank()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(operation, ": rank ", peer, " is not another rank of this group of ", group.size()));
}

}  // namespace

absl::Status AllGatherIntoTensor(ProcessGroup& group, at::Tensor output, const at::Tensor& input) {
  constexpr absl::string_view kOperation = "all_gather_into_tensor";
  if (absl::Status status = CheckParts(kOperation, output, input, group.size()); !status.ok()) return status;
  return group.Try(kOperation, [&] {
    std::vector<std::vector<at::Tensor>> outputs = {output.chunk(group.size())};
    std::vector<at::Tensor> inputs = {input};
    group.c10d()->allgather(outputs, inputs)->wait();
    return absl::OkStatus();
  });
}

absl::Status ReduceScatterTensor(ProcessGroup& group, at::Tensor output, const at::Tensor& input, ReduceOp op) {
  constexpr absl::string_view kOperation = "reduce_scatter_tensor";
  if (absl::Status status = CheckParts(kOperation, input, output, group.size()); !status.ok()) return status;
  if (op == ReduceOp::kAverage && !input.is_floating_point()) {
    return absl::InvalidArgumentError("reduce_scatter_tensor: kAverage requires a floating-point tensor");
  }
  return group.Try(kOperation, [&] {
    std::vector<at::Tensor> outputs = {output};
    std::vector<std::vector<at::Tensor>> inputs = {input.chunk(group.size())};
    c10d::ReduceScatterOptions options;
    // Gloo has no average.
    options.reduceOp = ToC10d(op == ReduceOp::kAverage ? ReduceOp::kSum : op);
    group.c10d()->reduce_scatter(outputs, inputs, options)->wait();
    if (op == ReduceOp::kAverage) output.div_(group.size());
    return absl::OkStatus();
  });
}

absl::Status AllToAllSingle(ProcessGroup& group, at::Tensor output, const at::Tensor& input) {
  constexpr absl::string_view kOperation = "all_to_all_single";
  if (absl::Status status = CheckParts(kOperation, output, input, 1); !status.ok()) return status;
  if (input.size(0) % group.size() != 0) {
    return absl::InvalidArgumentError(absl::StrCat(kOperation, ": the first dimension of ", Shape(input),
                                                   " is not a multiple of the ", group.size(), " ranks"));
  }
  return group.Try(kOperation, [&] {
    at::Tensor received = output, sent = input;
    std::vector<int64_t> equal;
    group.c10d()->alltoall_base(received, sent, equal, equal)->wait();
    return absl::OkStatus();
  });
}

absl::Status Send(ProcessGroup& group, const at::Tensor& tensor, int to, int tag) {
  if (absl::Status status = CheckTensor("send", tensor); !status.ok()) return status;
  if (absl::Status status = CheckPeer("send", group, to); !status.ok()) return status;
  return group.Try("send", [&] {
    std::vector<at::Tensor> tensors = {tensor};
    group.c10d()->send(tensors, to, tag)->wait();
    return absl::OkStatus();
  });
}

absl::Status Recv(ProcessGroup& group, at::Tensor tensor, int from, int tag) {
  if (absl::Status status = CheckTensor("recv", tensor); !status.ok()) return status;
  if (absl::Status status = CheckPeer("recv", group, from); !status.ok()) return status;
  return group.Try("recv", [&] {
    std::vector<at::Tensor> tensors = {tensor};
    group.c10d()->recv(tensors, from, tag)->wait();
    return absl::OkStatus();
  });
}

}  // namespace ddprun
