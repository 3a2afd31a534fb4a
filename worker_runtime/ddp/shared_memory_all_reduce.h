#ifndef DDPRUN_WORKER_RUNTIME_DDP_SHARED_MEMORY_ALL_REDUCE_H_
#define DDPRUN_WORKER_RUNTIME_DDP_SHARED_MEMORY_ALL_REDUCE_H_

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker_runtime/ddp/comm_hook.h"
#include "worker_runtime/ddp/shared_segment.h"
#include "worker_runtime/process_group/process_group.h"

namespace ddprun {

// An all-reduce through shared memory instead of sockets, for ranks that train on the CPU of one host. Makes a step of
// a small GPT 6 % faster (benchmarks/README.md). DdpOptions::shared_memory is the simple way to use it; this class
// reports why memory can't be shared, and composes with other hooks:
//
//   DDPRUN_ASSIGN_OR_RETURN(auto shared, ddprun::SharedMemoryAllReduce::Create(group));
//   DDPRUN_RETURN_IF_ERROR(ddp->RegisterCommHook(shared->Hook()));
// Each rank copies a piece of its tensor into its slot, sums one part of all slots, and copies the parts that the
// others summed (with two ranks: sums everything itself); pieces alternate between two halves of the slots. Sums are in
// rank order, so unlike Gloo's they do not depend on a gradient's position in a bucket: with two ranks the bits equal
// Gloo's, with more they differ.
//
// Waiting ranks spin for some microseconds, then sleep, so there may be more ranks than cores. The memory has no name
// in any file system and is freed with the last process, even after a SIGKILL.
//
// Use it from one thread at a time; all ranks must make the same calls.
class SharedMemoryAllReduce : public std::enable_shared_from_this<SharedMemoryAllReduce> {
 public:
  static constexpr size_t kDefaultBytesPerRank = 2 << 20;

  // Collective: all ranks of the group must call it with the same bytes_per_rank (a multiple of 256; tensors may have
  // any size). Errors, the same on all ranks: FailedPrecondition if a rank, named in the message, can't map the memory
  // because it runs on another host or in another container; ResourceExhausted if rank 0 could not allocate it.
  // Otherwise those of ProcessGroup.
  static absl::StatusOr<std::shared_ptr<SharedMemoryAllReduce>> Create(std::shared_ptr<ProcessGroup> group,
                                                                       size_t bytes_per_rank = kDefaultBytesPerRank);

  // Returns true if tensors of this dtype are supported.
  static bool Supports(at::ScalarType dtype);

  // Sets `tensor` to the sum over all ranks, each multiplied by `factor` first. Tensors are contiguous, on the CPU, of
  // equal shape and dtype on all ranks; float, double, bfloat16 or half, summed in their own precision.
  // Errors: InvalidArgument for other tensors; DeadlineExceeded after the group's timeout, with the ranks that did not
  // enter the operation; Unavailable if one of them died or failed; Aborted after the group's Abort. Errors are
  // returned within about 20 ms of the cause. After an error this object is unusable, like the group.
  absl::Status AllReduce(at::Tensor tensor, double factor = 1);

  // A hook that averages gradients with this object, for RegisterCommHook or as the inner hook of a compression hook.
  // The hook keeps this object alive.
  CommHook Hook();

 private:
  SharedMemoryAllReduce(std::shared_ptr<ProcessGroup> group, std::unique_ptr<SharedSegment> segment)
      : group_(std::move(group)), segment_(std::move(segment)) {}

  absl::Status EnterBarrier();
  absl::Status ReducePiece(const at::Tensor& piece, double factor);
  at::Tensor SlotAs(int rank, const at::Tensor& like, int64_t begin, int64_t count) const;
  void SumSlots(at::Tensor target, int64_t begin, int64_t count) const;

  const std::shared_ptr<ProcessGroup> group_;
  const std::unique_ptr<SharedSegment> segment_;
  int half_ = 0;  // half of the slots that the next piece uses
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_DDP_SHARED_MEMORY_ALL_REDUCE_H_
