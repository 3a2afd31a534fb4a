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

// Averages the gradients of a bucket over the ranks. The default is an all-reduce; a hook replaces it
// (DistributedDataParallel::RegisterCommHook).
//
// The hook receives this rank's gradients of a bucket, not divided: one-dimensional, contiguous, of one dtype and
// device, with the same length on all ranks. It is called on the thread that runs backward, for one bucket after the
// other in the same order on all ranks, while backward continues. backward() rethrows what it throws.
struct CommHook {
  // Completed with the tensor that replaces the bucket, of the same shape and dtype (it may be the bucket itself).
  using Future = c10::intrusive_ptr<c10::ivalue::Future>;

  std::string name;  // for logs
  std::function<Future(at::Tensor bucket, ProcessGroup& group)> run;
};

// The default: divides by the number of ranks, then sums over the group. The innermost hook of a composition.
CommHook AllReduceHook();

// Half the bytes: casts the bucket to half or bfloat16, passes it to `inner`, and casts the result back to the bucket's
// dtype. Same bits as Python's fp16_compress_hook and bf16_compress_hook. half overflows above 65504; bfloat16 has the
// range of float but 8 bits of precision.
CommHook Fp16CompressHook(CommHook inner = AllReduceHook());
CommHook Bf16CompressHook(CommHook inner = AllReduceHook());

// A hook from a function that averages the bucket in place before it returns. backward() throws its error.
CommHook SynchronousHook(std::string name, std::function<absl::Status(at::Tensor bucket, ProcessGroup& group)> reduce);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_DDP_COMM_HOOK_H_
