#ifndef DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_ASYNC_COLLECTIVES_H_
#define DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_ASYNC_COLLECTIVES_H_

#include <ATen/core/Tensor.h>

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker_runtime/process_group/process_group.h"

// torch.distributed's collectives with async_op=True: they return a handle while the operation runs.
//
//   DDPRUN_ASSIGN_OR_RETURN(ddprun::Work work, ddprun::AsyncAllReduce(*group, tensor));
//   ...                                             // compute something else, or start more operations
//   DDPRUN_RETURN_IF_ERROR(work.Wait());
//
// Several operations may be in flight; all ranks must start them in the same order, and may wait for them in any order.
// Until Wait has returned OK, the tensors must not be written, and tensors that the operation writes must not be read.
// Tensors must be contiguous, of one dtype and device. Threads: same rules as ProcessGroup, for Wait as well. n is the
// number of ranks.
namespace ddprun {

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

// Errors of the functions below: InvalidArgument for tensors that do not match the operation; those of ProcessGroup's
// operations if the group is already unusable.

// In place. Tensors have equal shape and dtype on all ranks. kAverage requires a floating-point dtype.
absl::StatusOr<Work> AsyncAllReduce(ProcessGroup& group, at::Tensor tensor, ReduceOp op = ReduceOp::kSum);
// In place, from `root`. Tensors have equal shape and dtype on all ranks.
absl::StatusOr<Work> AsyncBroadcast(ProcessGroup& group, at::Tensor tensor, int root = 0);
// Like the functions of the same names in tensor_collectives.h.
absl::StatusOr<Work> AsyncAllGatherIntoTensor(ProcessGroup& group, at::Tensor output, const at::Tensor& input);
absl::StatusOr<Work> AsyncReduceScatterTensor(ProcessGroup& group, at::Tensor output, const at::Tensor& input,
                                              ReduceOp op = ReduceOp::kSum);
absl::StatusOr<Work> AsyncSend(ProcessGroup& group, const at::Tensor& tensor, int to, int tag = 0);
absl::StatusOr<Work> AsyncRecv(ProcessGroup& group, at::Tensor tensor, int from, int tag = 0);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_ASYNC_COLLECTIVES_H_
