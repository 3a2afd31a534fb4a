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

// An all-reduce for ranks that train on the CPU of one host: through memory that they share instead of sockets. 6 %
// off the step of a small GPT (benchmarks/README.md).
//
//   auto shared = ddprun::SharedMemoryAllReduce::Create(group);
//   if (!shared.ok()) return shared.status();
//   if (absl::Status status = (*ddp)->RegisterCommHook((*shared)->Hook()); !status.ok()) return status;
//
// Each rank puts a piece of its tensor into its slot, adds up one part of what all put there, and takes the parts that the
// others added up (for two ranks: adds up all itself); pieces go through two halves of the slots in turn. Sums are in the
// order of ranks, so unlike Gloo's they do not depend on where a gradient lies in a bucket: with two ranks the bits are
// those of Gloo, with more they differ.
//
// Waiting ranks spin for some microseconds, then sleep, so it can be used where there are more ranks than cores. The
// memory has no name anywhere and is gone with the last process, also after a SIGKILL.
//
// Used by one thread at a time; all ranks make the same calls.
class SharedMemoryAllReduce : public std::enable_shared_from_this<SharedMemoryAllReduce> {
 public:
  static constexpr size_t kDefaultBytesPerRank = 2 << 20;

  // Collective: all ranks of the group make one together, with the same number of bytes for each rank (a multiple of
  // 256; tensors may be of any size).
  // Errors, the same on all ranks: FailedPrecondition if rank 0 got no memory, or if a rank can't see it because it runs
  // on another host or in another container: the text names it. Others are those of ProcessGroup.
  static absl::StatusOr<std::shared_ptr<SharedMemoryAllReduce>> Create(std::shared_ptr<ProcessGroup> group,
                                                                       size_t bytes_per_rank = kDefaultBytesPerRank);

  // Sets `tensor` to the sum over all ranks, each multiplied by `factor` before. Any shape, contiguous, on the CPU;
  // float, double, bfloat16 or half, which are added in their own precision. The same shape and dtype on all ranks.
  // Errors: InvalidArgument for another tensor; DeadlineExceeded after the group's timeout, naming the ranks that did not
  // come; Unavailable if one of them died or gave up; Aborted after the group's Abort. All within some 20 ms of the cause.
  // After an error this object is of no more use, as the group.
  absl::Status AllReduce(at::Tensor tensor, double factor = 1);

  // The average of gradients by this, for RegisterCommHook or as the inner one of a compression. Keeps this object.
  CommHook Hook();

 private:
  SharedMemoryAllReduce(std::shared_ptr<ProcessGroup> group, std::unique_ptr<SharedSegment> segment)
      : group_(std::move(group)), segment_(std::move(segment)) {}

  absl::Status Meet();
  absl::Status ReducePiece(const at::Tensor& piece, double factor);
  at::Tensor SlotAs(int rank, const at::Tensor& like, int64_t begin, int64_t count) const;
  void SumSlots(at::Tensor target, int64_t begin, int64_t count) const;

  const std::shared_ptr<ProcessGroup> group_;
  const std::unique_ptr<SharedSegment> segment_;
  int half_ = 0;  // which half of the slots the next piece goes through
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_DDP_SHARED_MEMORY_ALL_REDUCE_H_
