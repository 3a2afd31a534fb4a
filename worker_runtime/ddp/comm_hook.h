#ifndef DDPRUN_WORKER_RUNTIME_DDP_COMM_HOOK_H_
#define DDPRUN_WORKER_RUNTIME_DDP_COMM_HOOK_H_

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/intrusive_ptr.h>

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "worker_runtime/process_group/process_group.h"

namespace ddprun {

// How the gradients of a bucket become their average over the ranks. The default is an all-reduce; a hook takes its place
// (DistributedDataParallel::RegisterCommHook).
//
// A hook is given the bucket's gradients of this rank, not divided by anything: one dimension, contiguous, all of one
// dtype and device, of the same length on all ranks. It is called on the thread that runs backward, for one bucket after
// the other in the same order on all ranks, while the backward pass goes on. What it throws comes out of backward().
struct CommHook {
  // Completed with the tensor that takes the bucket's place, of the same shape and dtype (it may be the bucket itself).
  using Future = c10::intrusive_ptr<c10::ivalue::Future>;

  std::string name;  // for logs
  std::function<Future(at::Tensor bucket, ProcessGroup& group)> run;
};

// What the default does: divides by the number of ranks, adds up over the group. The composition's last link.
CommHook AllReduceHook();

// Half the bytes: the bucket is rounded to half or bfloat16, given to `inner`, and what comes back is rounded to the
// bucket's dtype again. Bits of Python's fp16_compress_hook and bf16_compress_hook. Half overflows above 65504; bfloat16
// has the range of float but 8 bits of precision.
CommHook Fp16CompressHook(CommHook inner = AllReduceHook());
CommHook Bf16CompressHook(CommHook inner = AllReduceHook());

// A hook that is done when `reduce` returns, having averaged the bucket in place. Its error comes out of backward().
CommHook SynchronousHook(std::string name, std::function<absl::Status(at::Tensor bucket, ProcessGroup& group)> reduce);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_DDP_COMM_HOOK_H_
