#ifndef DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_TENSOR_CHECKS_H_
#define DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_TENSOR_CHECKS_H_

#include <ATen/core/Tensor.h>

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "worker_runtime/process_group/process_group.h"

// Checks for arguments that a backend would reject with a less clear error, or by ending the process. All return
// InvalidArgument that starts with `operation`.
namespace ddprun {

std::string ShapeOf(const at::Tensor& tensor);

// Requires a defined and contiguous tensor.
absl::Status CheckTensor(absl::string_view operation, const at::Tensor& tensor);

// Requires that `whole` consists of `parts` tensors like `part`, concatenated in the first dimension.
absl::Status CheckParts(absl::string_view operation, const at::Tensor& whole, const at::Tensor& part, int parts);

absl::Status CheckPeer(absl::string_view operation, const ProcessGroup& group, int peer);

// Requires that send and recv can take the tensor: Gloo's end the process if it is not on the CPU.
absl::Status CheckSendable(absl::string_view operation, const ProcessGroup& group, const at::Tensor& tensor);

// kAverage requires a floating-point dtype.
absl::Status CheckOp(absl::string_view operation, const at::Tensor& tensor, ReduceOp op);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_TENSOR_CHECKS_H_
