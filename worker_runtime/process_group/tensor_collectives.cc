#include "worker_runtime/process_group/tensor_collectives.h"

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

#include "absl/strings/str_cat.h"
#include "worker_runtime/process_group/async_collectives.h"
#include "worker_runtime/process_group/tensor_checks.h"

namespace ddprun {
namespace {

absl::Status Finish(absl::StatusOr<Work> work) { return work.ok() ? work->Wait() : work.status(); }

}  // namespace

absl::Status AllGatherIntoTensor(ProcessGroup& group, at::Tensor output, const at::Tensor& input) {
  return Finish(AsyncAllGatherIntoTensor(group, output, input));
}

absl::Status ReduceScatterTensor(ProcessGroup& group, at::Tensor output, const at::Tensor& input, ReduceOp op) {
  return Finish(AsyncReduceScatterTensor(group, output, input, op));
}

absl::Status AllToAllSingle(ProcessGroup& group, at::Tensor output, const at::Tensor& input) {
  constexpr absl::string_view kOperation = "all_to_all_single";
  if (absl::Status status = CheckParts(kOperation, output, input, 1); !status.ok()) return status;
  if (input.size(0) % group.size() != 0) {
    return absl::InvalidArgumentError(absl::StrCat(kOperation, ": the first dimension of ", ShapeOf(input),
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
  return Finish(AsyncSend(group, tensor, to, tag));
}

absl::Status Recv(ProcessGroup& group, at::Tensor tensor, int from, int tag) {
  return Finish(AsyncRecv(group, tensor, from, tag));
}

}  // namespace ddprun
