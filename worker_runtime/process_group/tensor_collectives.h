#ifndef DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_TENSOR_COLLECTIVES_H_
#define DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_TENSOR_COLLECTIVES_H_

#include <ATen/core/Tensor.h>

#include "absl/status/status.h"
#include "worker_runtime/process_group/process_group.h"

// torch.distributed's collectives on one tensor, and point-to-point messages. They block as ProcessGroup's operations
// do, and have their errors; InvalidArgument also for shapes that do not fit. Tensors: contiguous, of one dtype and
// device. Threads: those of the group. n is the number of ranks.
namespace ddprun {

// all_gather_into_tensor: `output`, of n times the elements of `input` in its first dimension, gets the inputs of all
// ranks in rank order. The same shape and dtype on all ranks.
absl::Status AllGatherIntoTensor(ProcessGroup& group, at::Tensor output, const at::Tensor& input);

// reduce_scatter_tensor: `input` has n times the elements of `output` in its first dimension; rank r gets part r of the
// sum (average, ...) over all ranks. The same shapes and dtype on all ranks. kAverage requires a floating-point dtype.
absl::Status ReduceScatterTensor(ProcessGroup& group, at::Tensor output, const at::Tensor& input,
                                 ReduceOp op = ReduceOp::kSum);

// all_to_all_single with equal parts: part i of `input` goes to rank i, part i of `output` comes from rank i. Same
// shape for both, whose first dimension is a multiple of n.
absl::Status AllToAllSingle(ProcessGroup& group, at::Tensor output, const at::Tensor& input);

// send and recv: one tensor to or from another rank, matched by `tag`. The receiver's tensor has the sender's shape and
// dtype. Send may return before the receiver has called Recv.
absl::Status Send(ProcessGroup& group, const at::Tensor& tensor, int to, int tag = 0);
absl::Status Recv(ProcessGroup& group, at::Tensor tensor, int from, int tag = 0);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_TENSOR_COLLECTIVES_H_
