#ifndef DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_COLLECTIVES_H_
#define DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_COLLECTIVES_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker_runtime/process_group/process_group.h"

// torch.distributed's operations besides those of ProcessGroup: collectives on one tensor and point-to-point messages,
// each blocking or with a handle (async_op=True), and collectives on a number or a flag instead of a tensor. n is the
// number of ranks. All ranks must call the same operations in the same order, except for Send and Recv. Threads: same
// rules as ProcessGroup, for Work as well.
//
// Tensors must be contiguous, of one dtype and device. kAverage requires a floating-point dtype.
// Errors: those of ProcessGroup's operations; InvalidArgument for tensors that do not match the operation.
namespace ddprun {

// ---- operations on one tensor; they block like ProcessGroup's operations ----

// all_gather_into_tensor: `output`, whose first dimension is n times that of `input`, receives the inputs of all ranks
// in rank order. Shapes and dtype are equal on all ranks.
absl::Status AllGatherIntoTensor(ProcessGroup& group, at::Tensor output, const at::Tensor& input);

// reduce_scatter_tensor: the first dimension of `input` is n times that of `output`; rank r receives part r of the sum
// (average, ...) over all ranks. Shapes and dtype are equal on all ranks.
absl::Status ReduceScatterTensor(ProcessGroup& group, at::Tensor output, const at::Tensor& input,
                                 ReduceOp op = ReduceOp::kSum);

// all_to_all_single with equal parts: part i of `input` goes to rank i, part i of `output` comes from rank i. Both have
// the same shape, whose first dimension is a multiple of n.
absl::Status AllToAllSingle(ProcessGroup& group, at::Tensor output, const at::Tensor& input);

// send and recv: one tensor to or from another rank, matched by `tag`. The receiver's tensor must have the sender's
// shape and dtype. Send may return before the receiver has called Recv.
absl::Status Send(ProcessGroup& group, const at::Tensor& tensor, int to, int tag = 0);
absl::Status Recv(ProcessGroup& group, at::Tensor tensor, int from, int tag = 0);

// ---- operations with a handle ----
//
//   DDPRUN_ASSIGN_OR_RETURN(ddprun::Work work, ddprun::AsyncAllReduce(*group, tensor));
//   ...                                             // compute something else, or start more operations
//   DDPRUN_RETURN_IF_ERROR(work.Wait());
//
// Several operations may be in flight; all ranks must start them in the same order, and may wait for them in any order.
// Until Wait has returned OK, the tensors must not be written, and tensors that the operation writes must not be read.

// An operation in flight. Keeps the group alive. Dropping a handle without Wait does not stop the operation: it
// continues, the contents of its tensors are unspecified, and its error is not reported, but the group's next operation
// fails too.
class Work {
 public:
  Work(Work&& other) noexcept;
  Work& operator=(Work&& other) noexcept;
  ~Work();

  // Blocks until this rank is done with the tensors (NCCL: orders the current stream after the operation). Errors:
  // those of ProcessGroup's operations; Aborted at once after the group's Abort; FailedPrecondition after its Shutdown,
  // so call Wait before it. Further calls return the same result.
  absl::Status Wait();

  // Returns true if the operation has ended, successfully or not; Wait then returns without waiting for it. Does not
  // block.
  bool IsCompleted() const;

 private:
  friend class WorkMaker;
  struct State;
  explicit Work(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

// Like the functions without Async. Errors of the group are returned here only if it is unusable already.
absl::StatusOr<Work> AsyncAllReduce(ProcessGroup& group, at::Tensor tensor, ReduceOp op = ReduceOp::kSum);
absl::StatusOr<Work> AsyncBroadcast(ProcessGroup& group, at::Tensor tensor, int root = 0);
absl::StatusOr<Work> AsyncAllGatherIntoTensor(ProcessGroup& group, at::Tensor output, const at::Tensor& input);
absl::StatusOr<Work> AsyncReduceScatterTensor(ProcessGroup& group, at::Tensor output, const at::Tensor& input,
                                              ReduceOp op = ReduceOp::kSum);
absl::StatusOr<Work> AsyncSend(ProcessGroup& group, const at::Tensor& tensor, int to, int tag = 0);
absl::StatusOr<Work> AsyncRecv(ProcessGroup& group, at::Tensor tensor, int from, int tag = 0);

// ---- operations on a number or a flag: a metric, the number of samples, the decision to stop early ----
//
// Each call costs a round trip, and waits for the GPU if the group has NCCL alone.

// Returns the sum (average, ...) of all ranks' values, the same on all ranks. kAverage requires a double.
absl::StatusOr<double> AllReduceValue(ProcessGroup& group, double value, ReduceOp op = ReduceOp::kSum);
absl::StatusOr<int64_t> AllReduceValue(ProcessGroup& group, int64_t value, ReduceOp op = ReduceOp::kSum);
inline absl::StatusOr<int64_t> AllReduceValue(ProcessGroup& group, int value, ReduceOp op = ReduceOp::kSum) {
  return AllReduceValue(group, static_cast<int64_t>(value), op);
}

// Return true if `flag` is true on at least one rank, or on all ranks.
absl::StatusOr<bool> AnyRank(ProcessGroup& group, bool flag);
absl::StatusOr<bool> AllRanks(ProcessGroup& group, bool flag);

// Returns root's value on all ranks. The argument is ignored on other ranks.
absl::StatusOr<double> BroadcastValue(ProcessGroup& group, double value, int root = 0);
absl::StatusOr<int64_t> BroadcastValue(ProcessGroup& group, int64_t value, int root = 0);
inline absl::StatusOr<int64_t> BroadcastValue(ProcessGroup& group, int value, int root = 0) {
  return BroadcastValue(group, static_cast<int64_t>(value), root);
}

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_COLLECTIVES_H_
