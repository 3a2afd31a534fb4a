#ifndef DDPRUN_WORKER_RUNTIME_DDP_COMM_HOOK_H_
#define DDPRUN_WORKER_RUNTIME_DDP_COMM_HOOK_H_

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/intrusive_ptr.h>

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "worker_runtime/process_group/process_group.h"

namespace c10d {
class GradBucket;
}  // namespace c10d

namespace ddprun {

// Gradients that are averaged together, like Python's torch.distributed.GradBucket. Valid while the hook runs; a hook
// whose future completes later must keep the tensors that it needs.
class GradBucket {
 public:
  explicit GradBucket(const c10d::GradBucket& bucket);

  // Position among the buckets of an iteration, from 0, and true if it is the last. Buckets are the same on all ranks.
  // They are rebuilt after the first iteration, so state per index must start in the second one or later.
  size_t index() const;
  bool is_last() const;
  // This rank's gradients, not divided: one-dimensional, contiguous, of one dtype and device, with the same length on
  // all ranks.
  const at::Tensor& buffer() const { return buffer_; }
  // Views into buffer(), one per parameter of parameters(), of its shape.
  std::vector<at::Tensor> gradients() const;
  std::vector<at::Tensor> parameters() const;

  // Returns the same gradients in another buffer of the same length, for the inner hook of a composition.
  GradBucket WithBuffer(at::Tensor buffer) const;

 private:
  const c10d::GradBucket* bucket_;
  at::Tensor buffer_;
};

// Averages the gradients of a bucket over the ranks. The default is an all-reduce; a hook replaces it
// (DistributedDataParallel::RegisterCommHook).
//
// The hook is called on the thread that runs backward, for one bucket after the other in the same order on all ranks,
// while backward continues. backward() rethrows what it throws.
struct CommHook {
  // Completes with the tensor that replaces the bucket's buffer, of the same shape and dtype (it may be the buffer
  // itself).
  using Future = c10::intrusive_ptr<c10::ivalue::Future>;

  std::string name;  // shown in logs
  std::function<Future(const GradBucket& bucket, ProcessGroup& group)> run;
};

// Default hook: divides by the number of ranks, then sums over the group. The innermost hook of a composition.
CommHook AllReduceHook();

// Halve the bytes: cast the buffer to half or bfloat16, pass it to `inner`, and cast the result back to the buffer's
// dtype. Same bits as Python's fp16_compress_hook and bf16_compress_hook. half overflows above 65504; bfloat16 has the
// range of float but 8 bits of precision.
CommHook Fp16CompressHook(CommHook inner = AllReduceHook());
CommHook Bf16CompressHook(CommHook inner = AllReduceHook());

// Makes a hook from a function that averages the bucket's buffer in place before it returns. backward() throws its
// error.
CommHook SynchronousHook(std::string name,
                         std::function<absl::Status(const GradBucket& bucket, ProcessGroup& group)> reduce);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_DDP_COMM_HOOK_H_
