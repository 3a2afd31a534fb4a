#ifndef DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_TENSOR_COLLECTIVES_H_
#define DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_TENSOR_COLLECTIVES_H_

#include <ATen/core/Tensor.h>

#include "absl/status/status.h"
#include "worker_runtime/process_group/process_group.h"

// torch.distributed's collectives on one tensor, and point-to-point messages. They block like ProcessGroup's
// operations, and have their errors; also InvalidArgument for shapes that do not match. Tensors must be contiguous, of
// one dtype and device. Threads: same rules as ProcessGroup. n is the number of ranks.
namespace ddprun {

// all_gather_into_tensor: `output`, whose first dimension is n times that of `input`, receives the inputs of all ranks
// in rank order. Shapes and dtype are equal on all ranks.
absl::Status AllGatherIntoTensor(ProcessGroup& group, at::Tensor output, const at::Tensor& input);

// reduce_scatter_tensor: the first dimension of `input` is n times that of `output`; rank r receives part r of the sum
// (average, ...) over all ranks. Shapes and dtype are equal on all ranks. kAverage requires a floating-point dtype.
absl::Status ReduceScatterTensor(ProcessGroup& group, at::Tensor output, const at::Tensor& input,
                                 ReduceOp op = ReduceOp::kSum);

// all_to_all_single with equal parts: part i of `input` goes to rank i, part i of `output` comes from rank i. Both have
// the same shape, whose first dimension is a multiple of n.
absl::Status AllToAllSingle(ProcessGroup& group, at::Tensor output, const at::Tensor& input);

// send and recv: one tensor to or from another rank, matched by `tag`. The receiver's tensor must have the sender's
// shape and dtype. Send may return before the receiver has called Recv.
absl::Status Send(ProcessGroup& group, const at::Tensor& tensor, int to, int tag = 0);
absl::Status Recv(ProcessGroup& group, at::Tensor tensor, int from, int tag = 0);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_TENSOR_COLLECTIVES_H_
